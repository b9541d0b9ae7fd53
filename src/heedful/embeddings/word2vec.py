"""word2vec: learn word vectors from text, by skip-gram or CBOW (Mikolov et al. 2013).

    vectors = train_vectors(lambda: open("corpus.txt", encoding="utf-8"), WordOptions(width=100))

The text is read once to count words, then once per epoch; it is never in memory. Tokens are processed in blocks of
BLOCK_TOKENS, so all scores of a block, between its words and to its negative words, are one matrix product: with one
thread, this was 0.5 to 1.0 times as fast as the compiled code of gensim, depending on the processor. Two approximations
follow: pairs of words in different blocks are skipped, and the words of a block share their negative words.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heedful.embeddings.vectors import WordVectors
from heedful.errors import ConfigError, DataError, require

require("torch", extra="train", whose="heedful words")

import torch  # noqa: E402  # after the check that it is installed
from torch import Tensor  # noqa: E402

WORD = re.compile(r"\w+(?:['’-]\w+)*")  # apostrophes and hyphens inside words
BLOCK_TOKENS = 64
BATCH_BLOCKS = 4  # updates use the vectors from before their batch: larger batches are faster and less exact
READ_TOKENS = 1 << 16  # subsampled together
NOISE_POWER = 0.75  # of a word's count, as a negative word
NOISE_TABLE = 1 << 20
MAX_STEP = 2.0  # of a vector in a batch: its learning rate times the weights of its terms
MIN_RATE_SHARE = 1e-4 / 0.025  # of the learning rate at the end
MAX_SOFTMAX_WORDS = 20_000  # the full softmax scores all words for every word of the text

Ints = npt.NDArray[np.int64]
Lines = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class WordOptions:
    """How vectors are learned; the defaults are those of word2vec. `negatives=0` selects the full softmax."""

    method: str = "skip-gram"
    width: int = 100
    window: int = 5
    negatives: int = 5
    min_count: int = 5
    subsample: float = 1e-3
    epochs: int = 5
    learning_rate: float = 0.025
    keep_case: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"unknown method `{self.method}`; known: {', '.join(METHODS)}")
        for name in ("width", "window", "min_count", "epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.window >= BLOCK_TOKENS:
            raise ConfigError(f"window must be at most {BLOCK_TOKENS - 1}, not {self.window}")
        if self.negatives < 0 or self.subsample < 0 or self.learning_rate <= 0:
            raise ConfigError("negatives and subsample must be at least 0, and learning_rate above 0")


@dataclass(frozen=True, slots=True)
class WordsProgress:
    """How far the training is."""

    epoch: int
    words: int  # read so far, in all epochs
    total_words: int


@dataclass(frozen=True, slots=True)
class TextVocabulary:
    """The words of a text that are frequent enough, most frequent first, and their counts."""

    words: list[str]
    counts: Ints
    total: int  # words of the text, without rare words


def split_words(line: str, *, keep_case: bool = False) -> list[str]:
    """The words of a line, without punctuation, and lower-cased unless `keep_case`."""
    return WORD.findall(line if keep_case else line.lower())


def count_words(lines: Iterable[str], options: WordOptions) -> TextVocabulary:
    counter: Counter[str] = Counter()
    for line in lines:
        counter.update(split_words(line, keep_case=options.keep_case))
    frequent = sorted(
        ((word, count) for word, count in counter.items() if count >= options.min_count),
        key=lambda item: (-item[1], item[0]),
    )
    if len(frequent) < 2:
        raise DataError(
            f"{len(frequent)} words occur at least {options.min_count} times in the text: use more text, or a smaller "
            "minimum count"
        )
    counts = np.array([count for _, count in frequent], dtype=np.int64)
    return TextVocabulary([word for word, _ in frequent], counts, int(counts.sum()))


def keep_probabilities(counts: Ints, subsample: float) -> npt.NDArray[np.float64]:
    """p(keep w) = sqrt(t / f(w)) + t / f(w), at most 1, for the frequency f and the threshold t"""
    if not subsample:
        return np.ones(len(counts))
    ratio = subsample * counts.sum() / counts
    probabilities: npt.NDArray[np.float64] = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return probabilities


def make_noise_table(counts: Ints) -> Ints:
    """Words in proportion to count^0.75: a random entry is a random negative word."""
    weights = counts**NOISE_POWER
    return np.searchsorted(np.cumsum(weights / weights.sum()), (np.arange(NOISE_TABLE) + 0.5) / NOISE_TABLE)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Blocks of tokens [B, L], and whether two tokens are a word and one of its context [B, L, L]."""

    tokens: Tensor
    is_pair: Tensor
    words: int  # of the text, before subsampling


def read_batches(
    lines: Iterable[str], vocabulary: TextVocabulary, options: WordOptions, random: np.random.Generator
) -> Iterator[TokenBatch]:
    """Subsample the text, and cut it into blocks; a window has a random reach of 1 to `options.window`."""
    ids = {word: index for index, word in enumerate(vocabulary.words)}
    keep = keep_probabilities(vocabulary.counts, options.subsample)
    batch_tokens = BATCH_BLOCKS * BLOCK_TOKENS
    distance = np.abs(np.subtract.outer(np.arange(BLOCK_TOKENS), np.arange(BLOCK_TOKENS)))
    rest = np.empty((2, 0), dtype=np.int64)
    for tokens, sentences in read_tokens(lines, ids, options):
        kept = random.random(len(tokens)) < keep[tokens]
        stream = np.concatenate([rest, np.stack([tokens[kept], sentences[kept]])], axis=1)
        num_batches = stream.shape[1] // batch_tokens
        rest = stream[:, num_batches * batch_tokens :]
        is_last = len(tokens) < READ_TOKENS
        if is_last and rest.shape[1]:  # the last batch is filled with tokens without a sentence
            padding = np.tile([[0], [-1]], batch_tokens - rest.shape[1])
            stream, num_batches = np.concatenate([stream, padding], axis=1), num_batches + 1
        for number in range(num_batches):
            batch = stream[:, number * batch_tokens : (number + 1) * batch_tokens]
            blocks, sentence = batch.reshape(2, BATCH_BLOCKS, BLOCK_TOKENS)
            reach = random.integers(1, options.window, size=blocks.shape, endpoint=True)
            is_pair = (distance <= reach[:, :, None]) & (distance > 0)
            is_pair &= (sentence[:, :, None] == sentence[:, None, :]) & (sentence >= 0)[:, :, None]
            words = (
                len(tokens) // num_batches if number else len(tokens) - len(tokens) // num_batches * (num_batches - 1)
            )
            yield TokenBatch(torch.from_numpy(blocks.copy()), torch.from_numpy(is_pair), words)


def read_tokens(lines: Iterable[str], ids: dict[str, int], options: WordOptions) -> Iterator[tuple[Ints, Ints]]:
    """Tokens and the numbers of their lines, READ_TOKENS at a time; the last part is shorter."""
    tokens: list[int] = []
    sentences: list[int] = []
    for number, line in enumerate(lines):
        known = [ids[word] for word in split_words(line, keep_case=options.keep_case) if word in ids]
        tokens += known
        sentences += [number] * len(known)
        while len(tokens) >= READ_TOKENS:
            yield np.array(tokens[:READ_TOKENS]), np.array(sentences[:READ_TOKENS])
            tokens, sentences = tokens[READ_TOKENS:], sentences[READ_TOKENS:]
    yield np.array(tokens, dtype=np.int64), np.array(sentences, dtype=np.int64)


# ------------------------------------------------------------------------------------------------------------- updates


@dataclass(frozen=True, slots=True)
class Tables:
    """V: the vectors of words as input; U: their vectors as output, [words, D]; and a zero for each word."""

    input: Tensor
    output: Tensor
    steps: Tensor


def skip_gram_step(tables: Tables, batch: TokenBatch, negatives: Tensor, per_pair: int, rate: float) -> None:
    """Ascend sum over pairs (c, o) of log sigma(u_o . v_c) + k E_n log sigma(-u_n . v_c), with k = `per_pair`

    negatives: [B, N], shared by the pairs of a block, so each has the weight k / N.
    """
    tokens, is_pair = batch.tokens, batch.is_pair.float()
    words = torch.cat([tokens, negatives], 1)  # [B, L + N]
    v, u = tables.input[tokens], tables.output[words]
    num_pairs = is_pair.sum(2, keepdim=True)
    # d log sigma(x) = 1 - sigma(x) for pairs, d log sigma(-x) = -sigma(x) for negative words
    probabilities = torch.sigmoid(torch.bmm(v, u.transpose(1, 2)))  # [B, L, L + N]
    length = tokens.shape[1]
    gradient = probabilities.neg_()
    gradient[:, :, :length].add_(1).mul_(is_pair)
    gradient[:, :, length:].mul_(num_pairs * (per_pair / negatives.shape[1]))
    gradient *= rate
    input_weights = num_pairs[:, :, 0] * (1 + per_pair)
    negative_weights = (num_pairs.sum(1) * (per_pair / negatives.shape[1])).expand_as(negatives)
    output_weights = torch.cat([is_pair.sum(1), negative_weights], 1)
    add_rows(tables.input, tokens, torch.bmm(gradient, u), rate * input_weights, tables.steps)
    add_rows(tables.output, words, torch.bmm(gradient.transpose(1, 2), v), rate * output_weights, tables.steps)


def cbow_step(tables: Tables, batch: TokenBatch, negatives: Tensor, per_pair: int, rate: float) -> None:
    """Ascend sum over words c of log sigma(u_c . h_c) + k E_n log sigma(-u_n . h_c), h_c = mean of v_o over the context

    As in word2vec, the vectors of the context receive the whole gradient of h_c, not its mean.
    """
    tokens, is_pair = batch.tokens, batch.is_pair.float()
    v, u, u_negative = tables.input[tokens], tables.output[tokens], tables.output[negatives]
    num_pairs = is_pair.sum(2, keepdim=True)
    mean = torch.bmm(is_pair / num_pairs.clamp(min=1), v)
    has_context = rate * (num_pairs > 0).float()
    gradient = has_context * (1 - torch.sigmoid((mean * u).sum(2, keepdim=True)))  # [B, L, 1]
    weight = has_context * (per_pair / negatives.shape[1])
    negative_gradient = -weight * torch.sigmoid(torch.bmm(mean, u_negative.transpose(1, 2)))
    into_mean = gradient * u + torch.bmm(negative_gradient, u_negative)
    add_rows(tables.output, tokens, gradient * mean, has_context[:, :, 0], tables.steps)
    negative_weights = weight.sum(1).expand_as(negatives)
    add_rows(
        tables.output, negatives, torch.bmm(negative_gradient.transpose(1, 2), mean), negative_weights, tables.steps
    )
    input_weights = rate * (1 + per_pair) * is_pair.sum(1)
    add_rows(tables.input, tokens, torch.bmm(is_pair.transpose(1, 2), into_mean), input_weights, tables.steps)


def skip_gram_softmax_step(tables: Tables, batch: TokenBatch, rate: float) -> None:
    """Ascend sum over pairs (c, o) of log p(o | c), p(o | c) = exp(u_o . v_c) / sum_w exp(u_w . v_c)"""
    centers, contexts = pair_tokens(batch)
    v = tables.input[centers]
    gradient = softmax_gradient(v @ tables.output.T, contexts, rate)  # [pairs, words]
    weights = torch.full_like(centers, rate, dtype=v.dtype)
    add_rows(tables.input, centers, gradient @ tables.output, weights, tables.steps)
    tables.output.addmm_(gradient.T, v)


def cbow_softmax_step(tables: Tables, batch: TokenBatch, rate: float) -> None:
    """Ascend sum over words c of log p(c | h_c), h_c = mean of v_o over the context"""
    tokens, is_pair = batch.tokens, batch.is_pair.float()
    num_pairs = is_pair.sum(2, keepdim=True)
    has_context = (num_pairs > 0)[:, :, 0]
    mean = torch.bmm(is_pair / num_pairs.clamp(min=1), tables.input[tokens])
    gradient = softmax_gradient(mean[has_context] @ tables.output.T, tokens[has_context], rate)
    into_mean = torch.zeros_like(mean)
    into_mean[has_context] = gradient @ tables.output
    tables.output.addmm_(gradient.T, mean[has_context])
    into_words = torch.bmm(is_pair.transpose(1, 2), into_mean)
    add_rows(tables.input, tokens, into_words, rate * is_pair.sum(1), tables.steps)


def pair_tokens(batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """The words c and o of every pair."""
    block, center, context = batch.is_pair.nonzero(as_tuple=True)
    return batch.tokens[block, center], batch.tokens[block, context]


def softmax_gradient(scores: Tensor, targets: Tensor, rate: float) -> Tensor:
    """d log softmax(s)_y / d s = onehot(y) - softmax(s), times the rate"""
    gradient = scores.softmax(-1).mul_(-rate)
    gradient[torch.arange(len(targets)), targets] += rate
    return gradient


def add_rows(table: Tensor, rows: Tensor, values: Tensor, weights: Tensor, steps: Tensor) -> None:
    """Add values [.., D] to rows [..] of a table; the weights of a row sum to at most MAX_STEP.

    All terms of a batch are computed from the same vectors. Without the limit, frequent words would overshoot, and
    small vocabularies would diverge.
    """
    rows, values = rows.flatten(), values.flatten(0, -2)
    totals = steps.index_add_(0, rows, weights.flatten().to(steps.dtype))[rows]
    steps[rows] = 0
    table.index_add_(0, rows, values * (MAX_STEP / totals.clamp(min=MAX_STEP)).unsqueeze(-1))


METHODS = {"skip-gram": (skip_gram_step, skip_gram_softmax_step), "cbow": (cbow_step, cbow_softmax_step)}


# ------------------------------------------------------------------------------------------------------------ training


def train_vectors(
    lines: Lines, options: WordOptions, on_progress: Callable[[WordsProgress], None] | None = None
) -> WordVectors:
    """Learn the vectors of a text; `lines` opens it, once to count its words and once per epoch."""
    vocabulary = count_words(lines(), options)
    num_words = len(vocabulary.words)
    if not options.negatives and num_words > MAX_SOFTMAX_WORDS:
        raise ConfigError(
            f"the full softmax over {num_words:,} words would be too slow (at most {MAX_SOFTMAX_WORDS:,}): use "
            "negative sampling (negatives = 5), or a larger minimum count"
        )
    random = np.random.default_rng(options.seed)
    start = (random.random((num_words, options.width), dtype=np.float32) - 0.5) / options.width
    tables = Tables(torch.from_numpy(start), torch.zeros(num_words, options.width), torch.zeros(num_words))
    noise, words_read, total_words = make_noise_table(vocabulary.counts), 0, vocabulary.total * options.epochs
    sampling_step, softmax_step = METHODS[options.method]
    with torch.no_grad():
        for epoch in range(1, options.epochs + 1):
            for batch in read_batches(lines(), vocabulary, options, random):
                rate = options.learning_rate * max(MIN_RATE_SHARE, 1 - words_read / total_words)
                if options.negatives:
                    drawn = noise[random.integers(NOISE_TABLE, size=batch.tokens.shape)]
                    sampling_step(tables, batch, torch.from_numpy(drawn), options.negatives, rate)
                else:
                    softmax_step(tables, batch, rate)
                words_read += batch.words
                if on_progress:
                    on_progress(WordsProgress(epoch, words_read, total_words))
    return WordVectors(vocabulary.words, tables.input.numpy())
