"""What the training text looked like and how sure the model is of itself: the measure that later input is held to."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from heedful.alignment import AlignmentMethod
from heedful.data.plan import BLOCK_ROWS
from heedful.data.store import PreparedData, StoredCorpus
from heedful.sentinel import flag_rates
from heedful.types import Hypothesis

SAMPLE = 20_000  # texts that scripts are counted in
USUAL = 5_000  # pairs that the alarms look at
SHARES = (0.01, 0.05, 0.5)  # quantiles of confidence
SIDES = ("source", "target")


def statistics_of(
    prepared: PreparedData,
    corpora: Sequence[StoredCorpus],
    answers: Sequence[Hypothesis],
    reading: AlignmentMethod | None = None,
) -> dict[str, Any]:
    """Pairs, lengths and scripts of both sides; log p per token of what the model said of the validation set; which
    alarms training itself would set off; how to read links of words off the model's attention.
    """
    lengths = [lengths_of(corpora, side) for side in range(2)]
    texts = [texts_of(corpora, side) for side in SIDES]
    sure = [answer.log_probability / (len(answer.tokens) + 1) for answer in answers]
    return {
        "pairs": sum(corpus.num_rows for corpus in corpora),
        "fingerprint": prepared.fingerprint,
        "lengths": {
            side: {"mean": float(some.mean()), "p99": int(np.quantile(some, 0.99)), "longest": int(some.max())}
            for side, some in zip(SIDES, lengths, strict=True)
        },
        "ratio": float(lengths[1].sum() / lengths[0].sum()),  # target tokens per source token
        "scripts": {side: scripts(texts) for side, texts in zip(SIDES, texts, strict=True)},
        "usual": flag_rates(zip(*(side[:USUAL] for side in texts), strict=True)),
        "confidence": {f"p{round(100 * share)}": float(np.quantile(sure, share)) for share in SHARES} if sure else {},
        "alignment": asdict(reading) if reading else {},
    }


def lengths_of(corpora: Sequence[StoredCorpus], side: int) -> Any:
    """In tokens, the end token not counted."""
    blocks = [(corpus, block) for corpus in corpora for block in range(-(-corpus.num_rows // BLOCK_ROWS))]
    return np.concatenate([corpus.block_lengths(0, block)[side] for corpus, block in blocks]) - 1


def texts_of(corpora: Sequence[StoredCorpus], side: str) -> list[str]:
    """Some texts of every corpus; they are shuffled, so the first will do."""
    return [text for corpus in corpora for text in corpus.texts(side, 0)[: SAMPLE // len(corpora)]]


def scripts(texts: Sequence[str]) -> dict[str, float]:
    """The share of each script among the letters, such as {"LATIN": 0.99, "CYRILLIC": 0.01}; traces are left out."""
    letters = Counter(letter for text in texts for letter in text if letter.isalpha())
    found: Counter[str] = Counter()
    for letter, count in letters.items():
        found[unicodedata.name(letter, "UNKNOWN").split(" ")[0]] += count
    total = max(1, found.total())
    return {name: round(count / total, 6) for name, count in found.most_common() if count / total >= 1e-4}
