"""The searches of `heedful.search` in NumPy, for engines that compute single steps without PyTorch.

    results = run_search(step, source, past, sources, SearchOptions(beam=5))

`step(tokens [R], source, past) -> (log p [R, V], past, attention [R, layers, heads, S] or None)` is the model. `source`
and `past` are arrays whose axis 0 is the row; `source` is constant, `past` changes with every token. Tests check that
the results are those of the PyTorch searches.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heedful.engines.base import (
    EncodedSource,
    EngineResult,
    SamplingOptions,
    SearchOptions,
    group_samples,
    repeat_sources,
)
from heedful.errors import HeedfulError, did_you_mean
from heedful.search.hypotheses import BeamOptions, SentenceBeam, SentencePath, check_prefix
from heedful.search.stopping import LENGTH_RULES, STOPPING_RULES
from heedful.text.tokenizer import BOS, EOS, PAD

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Sequence[Array]
StepFunction: TypeAlias = Callable[[Array, Arrays, Arrays], tuple[Array, Arrays, Array | None]]
TokenChoice: TypeAlias = Callable[[Array, Sequence[int]], Array]  # log p [R, V], sentence of each row -> tokens [R]

BLOCK_SIZE = 128  # of the vocabulary, for `top_sums`


def run_search(
    step: StepFunction, source: Arrays, past: Arrays, sources: Sequence[EncodedSource], options: SearchOptions
) -> list[tuple[EngineResult, ...]]:
    """Up to `options.num_best` results for each source, best first; row i of `source` and `past` is sources[i]."""
    for kind, name, table in (
        ("length", options.length_rule, LENGTH_RULES),
        ("stopping", options.stopping, STOPPING_RULES),
    ):
        if name not in table:
            raise HeedfulError(f"unknown {kind} rule `{name}`" + did_you_mean(name, table))
    for encoded in sources:
        check_prefix(encoded.prefix, encoded.max_length, EOS)
    step = partial(step_without_special_tokens, step, options.renormalize)
    if options.sampling is None and max(options.beam, options.num_best) > 1:
        return beam_search(step, source, past, sources, options)
    if options.sampling is None:
        return [(result,) for result in generate(step, source, past, sources, choose_best, options)]
    repeated = repeat_sources(sources, options.num_best)
    rows = np.repeat(np.arange(len(sources)), options.num_best)
    generators = [make_generator(options.sampling.seed, encoded.index) for encoded in repeated]
    choose = partial(sample_tokens, sampling=options.sampling, generators=generators)
    samples = generate(step, select_rows(source, rows), select_rows(past, rows), repeated, choose, options)
    return group_samples(samples, options.num_best)


def step_without_special_tokens(
    step: StepFunction, renormalize: bool, tokens: Array, source: Arrays, past: Arrays
) -> tuple[Array, Arrays, Array | None]:
    """Run a step and suppress padding and start tokens; `renormalize` redistributes their probability."""
    log_probs, past, attention = step(tokens, source, past)
    log_probs[:, [PAD, BOS]] = -inf
    if renormalize:
        log_probs = log_probs - np.logaddexp.reduce(log_probs, -1, keepdims=True)
    return log_probs, past, attention


def select_rows(arrays: Arrays, rows: Array | Sequence[int]) -> list[Array]:
    return [array.take(rows, 0) for array in arrays]


def stack_attention(steps: Iterable[tuple[Array | None, int]], slots: int) -> Array | None:
    """(attention, row) of each step -> [layers, heads, steps, slots]; None if there is no attention."""
    rows = [attention[row][..., :slots] for attention, row in steps if attention is not None]
    return np.stack(rows, 2) if rows else None


def force_tokens(log_probs: Array, allowed: Array, tokens: Sequence[int]) -> Array:
    """Row r of `allowed`, or if tokens[r] is not -1: log p of tokens[r], and -inf for all others."""
    rows = [row for row, token in enumerate(tokens) if token >= 0]
    if not rows:
        return allowed
    forced, columns = allowed.copy(), [tokens[row] for row in rows]
    forced[rows] = -inf
    forced[rows, columns] = log_probs[rows, columns]
    return forced


def suppress_sequences(
    log_probs: Array, hypotheses: Sequence[Sequence[int]], sequences: Sequence[Sequence[int]]
) -> Array:
    """`search.filters.SuppressSequences`: remove tokens that would complete a sequence; hypotheses[r] is row r."""
    allowed = log_probs.copy()
    for row, tokens in enumerate(hypotheses):
        for *start, last in sequences:
            if list(tokens[len(tokens) - len(start) :]) == start:
                allowed[row, last] = -inf
        if np.isneginf(allowed[row]).all():
            allowed[row] = log_probs[row]
    return allowed


def forced_token(source: EncodedSource, length: int) -> int:
    """The prefix token at position `length`, or -1 after the prefix."""
    return source.prefix[length] if length < len(source.prefix) else -1


# ---------------------------------------------------------------------------------------------- greedy and sampling


def generate(
    step: StepFunction,
    source: Arrays,
    past: Arrays,
    sources: Sequence[EncodedSource],
    choose: TokenChoice,
    options: SearchOptions,
) -> list[EngineResult]:
    """Extend every sentence by the token that `choose` or its prefix picks; finished sentences leave the batch."""
    paths = [SentencePath(EOS, encoded.max_length) for encoded in sources]
    active = list(range(len(sources)))  # the sentence of each row
    tokens = np.full(len(active), BOS)
    attentions: list[Array | None] = []  # of each step
    while active:
        log_probs, past, attention = step(tokens, source, past)
        forced = [forced_token(sources[sentence], len(attentions)) for sentence in active]
        attentions.append(attention if options.attention else None)
        allowed = log_probs
        if options.suppress_sequences:
            hypotheses = [paths[sentence].tokens for sentence in active]
            allowed = suppress_sequences(log_probs, hypotheses, options.suppress_sequences)
        tokens = choose(force_tokens(log_probs, allowed, forced), active)
        values = log_probs[np.arange(len(tokens)), tokens].tolist()
        staying = []
        for row, (sentence, token, value) in enumerate(zip(active, tokens.tolist(), values, strict=True)):
            paths[sentence].append(row, token, value)
            if not paths[sentence].done:
                staying.append(row)
        if len(staying) < len(active):
            active = [active[row] for row in staying]
            tokens, source, past = tokens[staying], select_rows(source, staying), select_rows(past, staying)
    return [
        EngineResult(path.hypothesis(), stack_attention(zip(attentions, path.rows, strict=False), len(encoded.row)))
        for path, encoded in zip(paths, sources, strict=True)
    ]


def choose_best(log_probs: Array, sentences: Sequence[int]) -> Array:  # noqa: ARG001
    """y_t = argmax p(y | y_<t, x)"""
    chosen: Array = log_probs.argmax(-1)
    return chosen


def make_generator(seed: int, index: int) -> np.random.Generator:
    """The random generator of one sentence, independent of its batch."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, index % 2**64]))


def sample_tokens(
    log_probs: Array,
    sentences: Sequence[int],
    *,
    sampling: SamplingOptions,
    generators: Sequence[np.random.Generator],
) -> Array:
    """y_t ~ filtered p(y | y_<t, x): the first token whose cumulative p exceeds a number drawn from [0, sum)"""
    cumulative = filtered_probabilities(log_probs.astype(np.float64), sampling).cumsum(-1)
    drawn = np.array([generators[sentence].random() for sentence in sentences]) * cumulative[:, -1]
    chosen: Array = np.minimum((cumulative <= drawn[:, None]).sum(-1), log_probs.shape[1] - 1)
    return chosen


def filtered_probabilities(log_probs: Array, sampling: SamplingOptions) -> Array:
    """p^(1/t), then top-k, then top-p; not normalized"""
    scaled = log_probs / sampling.temperature
    probs: Array = np.exp(scaled - scaled.max(-1, keepdims=True))
    if sampling.top_k is None and sampling.top_p is None:
        return probs
    order = np.argsort(-probs, axis=-1, kind="stable")
    best_first = np.take_along_axis(probs, order, -1)
    if sampling.top_k is not None:
        best_first[:, sampling.top_k :] = 0.0
    if sampling.top_p is not None:
        share = best_first / best_first.sum(-1, keepdims=True)
        before = share.cumsum(-1) - share  # the probability of all better tokens
        # Tolerate single-precision rounding: three tokens of .5, .25, .15 reach .9.
        removed = before >= sampling.top_p - 8 * np.finfo(np.float32).eps
        removed[:, 0] = False  # always keep the best
        best_first[removed] = 0.0
    np.put_along_axis(probs, order, best_first, -1)
    return probs


# ------------------------------------------------------------------------------------------------------------ beam


def beam_search(
    step: StepFunction, source: Arrays, past: Arrays, sources: Sequence[EncodedSource], options: SearchOptions
) -> list[tuple[EngineResult, ...]]:
    """`search.beam.Beam` in NumPy: the `num_best` sequences found by keeping the best few prefixes at each step"""
    size = max(options.beam, options.num_best)
    beam_options = BeamOptions(size, options.num_best, options.length_rule, options.length_penalty, options.stopping)
    beams = [SentenceBeam(beam_options, EOS, encoded.max_length) for encoded in sources]
    active = list(range(len(sources)))  # sentences that are not done; each has `width` rows, in this order
    tokens = np.full(len(active), BOS)
    row_source = source  # one copy per row, updated only when sentences or widths change
    attentions: list[Array | None] = []  # of each step
    width = 1
    while active:
        log_probs, past, attention = step(tokens, row_source, past)
        forced = [forced_token(sources[sentence], len(attentions)) for sentence in active for _ in range(width)]
        attentions.append(attention if options.attention else None)
        allowed = log_probs
        if options.suppress_sequences:
            nodes = [node for sentence in active for node in beams[sentence].live]
            hypotheses = [[ancestor.token for ancestor in node.path()] for node in nodes]
            allowed = suppress_sequences(log_probs, hypotheses, options.suppress_sequences)
        filtered = force_tokens(log_probs, allowed, forced).reshape(len(active), width, -1)
        totals = np.array([[node.total for node in beams[sentence].live] for sentence in active])
        sums, parents, words = top_sums(totals, filtered, 2 * size)
        first_rows = np.arange(0, len(tokens), width)[:, None]
        values = log_probs[first_rows + parents, words].tolist()
        columns = zip(active, sums.tolist(), parents.tolist(), words.tolist(), values, strict=True)
        for place, (sentence, *continuations) in enumerate(columns):
            beams[sentence].extend(place * width, *continuations)
        staying = [place for place, sentence in enumerate(active) if not beams[sentence].done]
        active = [active[place] for place in staying]
        if not active:
            break
        new_width = max(len(beams[sentence].live) for sentence in active)
        for sentence in active:
            beams[sentence].pad(new_width)
        if new_width != width or len(staying) < len(sums):
            source = select_rows(source, staying)
            row_source = select_rows(source, np.repeat(np.arange(len(staying)), new_width))
            width = new_width
        nodes = [node for sentence in active for node in beams[sentence].live]
        past = select_rows(past, [node.row for node in nodes])
        tokens = np.array([node.token for node in nodes])
    return [
        tuple(
            EngineResult(hypothesis, stack_attention(zip(attentions, rows, strict=False), len(encoded.row)))
            for hypothesis, rows in beam.best_hypotheses()
        )
        for beam, encoded in zip(beams, sources, strict=True)
    ]


def top_sums(bases: Array, values: Array, k: int) -> tuple[Array, Array, Array]:
    """The k largest bases[b, r] + values[b, r, v] of each b, best first, with their r and v; ties go to the first.

    [B, R], [B, R, V] -> three arrays [B, k], or less if R V < k. The k largest are in the k blocks with the largest
    maxima, and one fast pass computes these maxima.
    """
    groups, _, size = values.shape
    starts = np.arange(0, size, BLOCK_SIZE)
    maxima = np.maximum.reduceat(values, starts, axis=-1) + bases[:, :, None]
    chosen = top_positions(maxima.reshape(groups, -1), k)  # [B, k] blocks
    row, column = chosen // len(starts), chosen % len(starts) * BLOCK_SIZE
    columns = column[:, :, None] + np.arange(BLOCK_SIZE)  # [B, k, BLOCK_SIZE]
    inside = columns < size
    columns = np.where(inside, columns, 0)
    block_values = values[np.arange(groups)[:, None, None], row[:, :, None], columns]
    sums = block_values + np.take_along_axis(bases, row, 1)[..., None]
    sums = np.where(inside, sums, -inf).reshape(groups, -1)
    top = top_positions(sums, k)
    order = np.argsort(-np.take_along_axis(sums, top, 1), axis=-1, kind="stable")
    top = np.take_along_axis(top, order, 1)
    pick = partial(np.take_along_axis, indices=top, axis=1)
    return pick(sums), np.take_along_axis(row, top // BLOCK_SIZE, 1), pick(columns.reshape(groups, -1))


def top_positions(values: Array, k: int) -> Array:
    """The positions of the k largest of each row, in ascending order; ties go to the first: [B, n] -> [B, k]"""
    groups, size = values.shape
    if k >= size:
        return np.broadcast_to(np.arange(size), values.shape)
    smallest = np.partition(values, size - k, axis=-1)[:, size - k, None]
    above, equal = values > smallest, values == smallest
    room = k - above.sum(-1, keepdims=True)
    return np.nonzero(above | (equal & (equal.cumsum(-1) <= room)))[1].reshape(groups, k)
