"""Statistics of the training text and of the model's confidence, for comparison with later input."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from heedful.alignment import AlignmentMethod
from heedful.data.plan import BLOCK_ROWS
from heedful.data.store import PreparedData, StoredCorpus
from heedful.sentinel import flag_rates, frequent_words
from heedful.text.sentences import split_sentences
from heedful.types import Hypothesis

MAX_SCRIPT_TEXTS = 20_000  # in which scripts are counted
MAX_FLAG_PAIRS = 5_000  # on which flags are counted
CONFIDENCE_QUANTILES = (0.01, 0.05, 0.5)
SIDES = ("source", "target")


def training_statistics(
    prepared: PreparedData,
    corpora: Sequence[StoredCorpus],
    hypotheses: Sequence[Hypothesis],
    reading: AlignmentMethod | None = None,
) -> dict[str, Any]:
    """Pairs; lengths, scripts and sentences of both sides; frequent source words; confidence on the validation set (log
    p per token); how often training pairs raise each flag; the attention head that aligns words best.
    """
    lengths = [token_lengths(corpora, side) for side in range(2)]
    texts = [sample_texts(corpora, side) for side in SIDES]
    if not prepared.has_text_source:
        return statistics_of_targets(prepared, corpora, lengths[1], texts[1])
    languages = [prepared.manifest[side] for side in SIDES]
    confidence = [hypothesis.log_probability / (len(hypothesis.tokens) + 1) for hypothesis in hypotheses]
    quantiles = {f"p{round(100 * share)}": share for share in CONFIDENCE_QUANTILES} if confidence else {}
    return {
        "pairs": sum(corpus.num_rows for corpus in corpora),
        "fingerprint": prepared.fingerprint,
        "lengths": {side: describe_lengths(counts) for side, counts in zip(SIDES, lengths, strict=True)},
        "ratio": float(lengths[1].sum() / lengths[0].sum()),  # target tokens per source token
        "scripts": {side: count_scripts(texts) for side, texts in zip(SIDES, texts, strict=True)},
        "sentences": dict(zip(SIDES, map(multiple_sentences_share, texts, languages), strict=True)),
        "words": {"source": frequent_words(texts[0])},
        "usual": flag_rates(zip(*(side[:MAX_FLAG_PAIRS] for side in texts), strict=True)),
        "confidence": {name: float(np.quantile(confidence, share)) for name, share in quantiles.items()},
        "alignment": asdict(reading) if reading else {},
    }


def statistics_of_targets(
    prepared: PreparedData, corpora: Sequence[StoredCorpus], lengths: Any, texts: Sequence[str]
) -> dict[str, Any]:
    """The statistics of a model whose sources are not text."""
    return {
        "pairs": sum(corpus.num_rows for corpus in corpora),
        "fingerprint": prepared.fingerprint,
        "lengths": {"target": describe_lengths(lengths)},
        "scripts": {"target": count_scripts(texts)},
    }


def describe_lengths(counts: Any) -> dict[str, Any]:
    return {"mean": float(counts.mean()), "p99": int(np.quantile(counts, 0.99)), "longest": int(counts.max())}


def token_lengths(corpora: Sequence[StoredCorpus], side: int) -> Any:
    """Lengths in tokens, without the end token."""
    blocks = [(corpus, block) for corpus in corpora for block in range(-(-corpus.num_rows // BLOCK_ROWS))]
    return np.concatenate([corpus.block_lengths(0, block)[side] for corpus, block in blocks]) - 1


def sample_texts(corpora: Sequence[StoredCorpus], side: str) -> list[str]:
    """The first texts of every corpus: a random sample, because corpora are shuffled."""
    return [text for corpus in corpora for text in corpus.texts(side, 0)[: MAX_SCRIPT_TEXTS // len(corpora)]]


def multiple_sentences_share(texts: Sequence[str], language: str) -> float:
    """The share of texts with several sentences."""
    return round(sum(len(split_sentences(text, language)) > 1 for text in texts) / max(1, len(texts)), 4)


def count_scripts(texts: Sequence[str]) -> dict[str, float]:
    """The share of each script among the letters, such as {"LATIN": 0.99, "CYRILLIC": 0.01}, without rare ones."""
    letters = Counter(letter for text in texts for letter in text if letter.isalpha())
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        scripts[unicodedata.name(letter, "UNKNOWN").split(" ")[0]] += count
    total = max(1, scripts.total())
    return {name: round(count / total, 6) for name, count in scripts.most_common() if count / total >= 1e-4}
