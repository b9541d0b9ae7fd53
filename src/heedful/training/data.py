"""The data of a run: training corpora, validation pairs, and batches as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from heedful.config import InputSettings, TextInputSettings
from heedful.corpus.replay import REPLAY_NAME
from heedful.corpus.shards import hash_values
from heedful.data.batch import Batch, collate
from heedful.data.plan import EpochPosition, MicroBatch, Plan
from heedful.data.resampling import ResegmentedCorpus
from heedful.data.store import PreparedData, StoredCorpus
from heedful.errors import DataError
from heedful.inputs.kinds import Input, make_input
from heedful.text.tokenizer import BOS, EOS, PAD

EXACT_MICRO_BATCHES = 4  # in an exact run, so that 1, 2 or 4 processes can share them

Corpora = Sequence[StoredCorpus | ResegmentedCorpus]


@dataclass(frozen=True)
class ValidationSet:
    """Held-out pairs, as rows and as text (the names of files, if the sources are not text)."""

    sources: list[Any]  # lists of ids, or features [S, F]
    targets: list[list[int]]
    texts: list[str]
    references: list[str]
    has_text_source: bool = True

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def is_unconditional(self) -> bool:
        """Whether there are no sources, as for a language model."""
        return not any(map(len, self.sources)) and not self.has_text_source

    @cached_property
    def max_target_tokens(self) -> int:
        return max(map(len, self.targets))


@dataclass(frozen=True)
class TrainingData:
    """The training corpora and the validation set of a run."""

    prepared: PreparedData
    corpora: Corpora
    validation: ValidationSet
    inputs: Input = field(default_factory=lambda: make_input(TextInputSettings()))
    seed: int = 1

    @property
    def num_pairs(self) -> int:
        return sum(corpus.num_rows for corpus in self.corpora)

    def load_batch(self, micro_batch: MicroBatch) -> Batch:
        return load_batch(self.corpora, micro_batch, self.inputs, self.seed)

    @property
    def stored_corpora(self) -> list[StoredCorpus]:
        """The corpora without subword regularization."""
        return [stored_corpus(corpus) for corpus in self.corpora]


def load_data(
    prepared: PreparedData,
    *,
    validate_pairs: int,
    regularization: float,
    seed: int,
    inputs: InputSettings = TextInputSettings(),  # noqa: B008  # immutable
) -> TrainingData:
    """Split a prepared corpus into training and validation; with regularization, re-segment it every epoch."""
    learned, validation = split_validation(prepared, validate_pairs)
    corpora = regularize(prepared, learned, regularization, seed)
    return TrainingData(prepared, corpora, validation, make_input(inputs), seed)


def split_validation(prepared: PreparedData, max_pairs: int) -> tuple[tuple[StoredCorpus, ...], ValidationSet]:
    """Training corpora and validation set (the validation corpora, or the end of the largest training corpus).

    Prepared text is ordered by hash, so its last pairs are a random sample. Replayed corpora are not validated on. All
    pairs of one file, such as the captions of a picture, are either in training or in validation.
    """
    train, validation = prepared.train, prepared.split("validation")
    if validation:
        return train, read_pairs(validation, max_pairs, has_text_source=prepared.has_text_source)
    new = [index for index, corpus in enumerate(train) if not corpus.name.startswith(REPLAY_NAME)]
    largest = max(new or range(len(train)), key=lambda index: train[index].num_rows)
    count = min(max_pairs, train[largest].num_rows // 10)
    if not count:
        raise DataError(
            "the corpus is too small to hold out pairs for validation: use at least 10 pairs, or add a validation set"
        )
    if not prepared.has_text_source:
        count = count_whole_files(train[largest], count)
    rest, rows = train[largest].without_last(count), range(train[largest].num_rows - count, train[largest].num_rows)
    pairs = train[largest].pairs(rows)
    has_text = prepared.has_text_source
    sources, targets = [source_row(row, has_text) for row, _ in pairs], [ids.tolist() for _, ids in pairs]
    references = prepared.tokenizer("target").decode(targets)
    texts = prepared.tokenizer("source").decode(sources) if has_text else train[largest].texts_of_rows("source", rows)
    return (*train[:largest], rest, *train[largest + 1 :]), ValidationSet(sources, targets, texts, references, has_text)


def count_whole_files(corpus: StoredCorpus, count: int) -> int:
    """How many of the last `count` rows begin after the file of the row before them; `count`, if none does."""
    names = corpus.texts_of_rows("source", range(corpus.num_rows - count - 1, corpus.num_rows))
    return next((count + 1 - row for row, name in enumerate(names) if name != names[0]), count)


def source_row(row: Any, has_text_source: bool) -> Any:
    """A stored row: a list of ids, if it is text."""
    return row.tolist() if has_text_source else row


def read_pairs(
    corpora: Sequence[StoredCorpus], max_pairs: int | None = None, *, has_text_source: bool = True
) -> ValidationSet:
    """All pairs of the corpora; with `max_pairs`, the first pairs of each, in equal shares."""
    pairs = ValidationSet([], [], [], [], has_text_source)
    for corpus in corpora:
        count = corpus.num_rows if max_pairs is None else min(corpus.num_rows, -(-max_pairs // len(corpora)))
        for source, target in corpus.pairs(range(count)):
            pairs.sources.append(source_row(source, has_text_source))
            pairs.targets.append(target.tolist())
        for side, texts in (("source", pairs.texts), ("target", pairs.references)):
            texts += [text for folder in range(len(corpus.folders)) for text in corpus.texts(side, folder)][:count]
    return pairs


def regularize(prepared: PreparedData, corpora: Sequence[StoredCorpus], amount: float, seed: int) -> Corpora:
    """The corpora, re-segmented every epoch unless the amount of subword regularization is 0."""
    if not amount:
        return corpora
    rows = {corpus.name: corpus.num_rows for corpus in prepared.train}
    return [
        ResegmentedCorpus(prepared, corpus.name, amount, seed, num_held_out=rows[corpus.name] - corpus.num_rows)
        for corpus in corpora
    ]


def stored_corpus(corpus: StoredCorpus | ResegmentedCorpus) -> StoredCorpus:
    """The corpus without subword regularization."""
    return corpus.unregularized if isinstance(corpus, ResegmentedCorpus) else corpus


def make_plan(prepared: PreparedData, corpora: Corpora, *, seed: int, batch_tokens: int, micro_batches: int) -> Plan:
    return Plan(
        corpora,
        seed=seed,
        batch_tokens=batch_tokens,
        micro_batches=micro_batches,
        weights=prepared.corpus_weights,
        temperature=prepared.manifest["temperature"],
    )


def count_micro_batches(requested: int | None, ranks: int, *, exact: bool) -> int:
    """Micro-batches per batch: as requested, else one per process, but at least EXACT_MICRO_BATCHES if exact."""
    return requested or (max(EXACT_MICRO_BATCHES, ranks) if exact else ranks)


def load_batch(corpora: Corpora, micro_batch: MicroBatch, inputs: Input | None = None, seed: int = 1) -> Batch:
    """The tensors of a micro-batch; the variation of a source depends on seed, corpus, epoch and row."""
    corpus = corpora[micro_batch.corpus]
    rows = micro_batch.rows.tolist()
    pairs = corpus.pairs(micro_batch.epoch, rows) if isinstance(corpus, ResegmentedCorpus) else corpus.pairs(rows)
    has_text = inputs is None or "source" in inputs.text_sides
    sources = [source_row(source, has_text) for source, _ in pairs]
    if inputs is not None and inputs.num_features:
        keys = [(seed, corpus.fingerprint, "augment", micro_batch.epoch, row) for row in rows]
        sources = [inputs.augment(row, make_generator(*key)) for row, key in zip(sources, keys, strict=True)]
    targets = [target.tolist() for _, target in pairs]
    return collate(list(zip(sources, targets, strict=True)), bos=BOS, eos=EOS, pad=PAD, end_source=has_text)


def make_generator(*key: object) -> np.random.Generator:
    """A generator of random numbers that depends only on the key."""
    return np.random.Generator(np.random.Philox(key=int(hash_values(key)[:32], 16)))


def line_numbers(micro_batches: Sequence[MicroBatch], corpora: Corpora) -> tuple[tuple[str, int], ...]:
    """(corpus name, line number) of every pair in the micro-batches."""
    lines: list[tuple[str, int]] = []
    for micro_batch in micro_batches:
        corpus = corpora[micro_batch.corpus]
        lines += [(corpus.name, line) for line in stored_corpus(corpus).line_numbers(micro_batch.rows.tolist())]
    return tuple(lines)


def mean_epoch(positions: Sequence[EpochPosition], corpora: Corpora, num_pairs: int) -> float:
    """Completed epochs: the mean over all corpora, weighted by size."""
    passes = (
        (position.epoch + position.fraction) * corpus.num_rows
        for position, corpus in zip(positions, corpora, strict=True)
    )
    return sum(passes) / num_pairs
