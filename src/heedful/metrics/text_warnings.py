"""Was the text written in another way than its reference?

    suspicions(hypotheses, references)        # ["the translations look tokenized ..."]

Tokenized or lower-cased text is scored too low against text that is not, and the score itself does not tell.
"""

import re
from collections.abc import Iterable, Sequence

# French writes ? ! : ; apart, so these do not count.
TOKENIZED = re.compile(r" [.,](?: |$)|@-@|@@(?: |$)|&apos;|&quot;|\u2581")
MUCH = 0.3  # share of lines that is a habit and no accident
LITTLE = 0.03


def suspicions(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> list[str]:
    """What is likely wrong with the text, in sentences; a few odd lines are not worth one."""
    found = []
    cut, cut_references = tokenized(hypotheses), [tokenized(one) for one in references]
    if cut > MUCH and min(cut_references) > MUCH:
        found.append("both sides look tokenized: such scores cannot be compared with those of ordinary text")
    elif cut > MUCH:
        found.append("the translations look tokenized and a reference does not: detokenize them before they are scored")
    elif max(cut_references) > MUCH:
        found.append("a reference looks tokenized and the translations do not: use the original text of the reference")
    if not lowercase:
        upper, upper_references = capital(hypotheses), [capital(one) for one in references]
        if upper < LITTLE and max(upper_references) > MUCH:
            found.append("the translations look lower-cased and a reference does not: --lowercase ignores case")
        elif upper > MUCH and min(upper_references) < LITTLE:
            found.append("a reference looks lower-cased and the translations do not: --lowercase ignores case")
    if empty := sum(not one.strip() for one in hypotheses):
        found.append(f"{empty:,} of {len(hypotheses):,} translations are empty")
    if empty := sum(not any(map(str.strip, some)) for some in zip(*references, strict=True)):
        found.append(f"{empty:,} of {len(hypotheses):,} lines have no reference but an empty one")
    return found


def tokenized(lines: Iterable[str]) -> float:
    """The share of lines in which punctuation stands apart, or words are cut."""
    return share(bool(TOKENIZED.search(line)) for line in lines if line.strip())


def capital(lines: Iterable[str]) -> float:
    """The share of lines with a capital letter, among those whose letters have case."""
    return share(line != line.lower() for line in lines if line.lower() != line.upper())


def share(told: Iterable[bool]) -> float:
    """How many are true; of none, neither much nor little."""
    every = list(told)
    return sum(every) / len(every) if every else (LITTLE + MUCH) / 2
