"""Warn about translations and references that are written differently.

    find_text_warnings(hypotheses, references)        # ["the translations look tokenized ..."]

Tokenized or lower-cased text scores too low against ordinary text, and the score does not show the reason.
"""

import re
from collections.abc import Iterable, Sequence

# French has spaces before ? ! : ; so these do not count.
TOKENIZED_PATTERN = re.compile(r" [.,](?: |$)|@-@|@@(?: |$)|&apos;|&quot;|\u2581")
COMMON_SHARE = 0.3  # of the lines: a property of the text
RARE_SHARE = 0.03  # of the lines: exceptions


def find_text_warnings(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> list[str]:
    """Likely problems of the text, one sentence each; a few unusual lines cause no warning."""
    warnings = []
    hypotheses_share, reference_shares = tokenized_share(hypotheses), [tokenized_share(lines) for lines in references]
    if hypotheses_share > COMMON_SHARE and min(reference_shares) > COMMON_SHARE:
        warnings.append("both sides look tokenized: the scores cannot be compared with scores of ordinary text")
    elif hypotheses_share > COMMON_SHARE:
        warnings.append(
            "the translations look tokenized and a reference does not: detokenize the translations before scoring"
        )
    elif max(reference_shares) > COMMON_SHARE:
        warnings.append(
            "a reference looks tokenized and the translations do not: use the original text of the reference"
        )
    if not lowercase:
        hypotheses_share, reference_shares = (
            capitalized_share(hypotheses),
            [capitalized_share(lines) for lines in references],
        )
        if hypotheses_share < RARE_SHARE and max(reference_shares) > COMMON_SHARE:
            warnings.append(
                "the translations look lower-cased and a reference does not: to ignore case, add --lowercase"
            )
        elif hypotheses_share > COMMON_SHARE and min(reference_shares) < RARE_SHARE:
            warnings.append(
                "a reference looks lower-cased and the translations do not: to ignore case, add --lowercase"
            )
    if empty := sum(not line.strip() for line in hypotheses):
        warnings.append(f"{empty:,} of {len(hypotheses):,} translations are empty")
    if empty := sum(not any(map(str.strip, lines)) for lines in zip(*references, strict=True)):
        warnings.append(f"{empty:,} of {len(hypotheses):,} lines have only empty references")
    return warnings


def tokenized_share(lines: Iterable[str]) -> float:
    """The fraction of lines with separated punctuation or split words."""
    return share_of_true(bool(TOKENIZED_PATTERN.search(line)) for line in lines if line.strip())


def capitalized_share(lines: Iterable[str]) -> float:
    """The fraction of lines with a capital letter, among those with letters that have case."""
    return share_of_true(line != line.lower() for line in lines if line.lower() != line.upper())


def share_of_true(conditions: Iterable[bool]) -> float:
    """The fraction that is true; without any conditions, a value that causes no warning."""
    values = list(conditions)
    return sum(values) / len(values) if values else (RARE_SHARE + COMMON_SHARE) / 2
