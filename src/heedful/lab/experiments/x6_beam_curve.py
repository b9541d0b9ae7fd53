"""X6: what a larger beam changes: search errors, quality and length of translations.

The small Portuguese-English model that comes with heedful translates short sentences of its own test set. An exact
search is the judge: it finds the most probable translation of all. Beams are without length normalization, so both
searches have the same objective, log p(y | x).
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from heedful.data.batch import pad_rows
from heedful.engines.torch import TorchEngine
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean, estimate_share
from heedful.lab.tasks import read_sample
from heedful.metrics.ngrams import chrf, chrf_counts
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.contract import Memory, select
from heedful.search import Beam, DecodingLimits
from heedful.text.tokenizer import BOS, EOS, PAD
from heedful.translation.loading import load
from heedful.translation.translator import encode_texts

MODEL = "pt-en"
GOOD_SIZE = 5  # of a beam: larger ones are compared with it
MAX_LENGTH = 60  # pieces of a translation
BATCH_SENTENCES = 10
ROWS = 32  # prefixes that the exact search extends at a time
MAX_GAIN = 1.0  # chrF: larger beams that gain less are not better
MARGIN = 1e-4  # of log p: less is a rounding error


@dataclass(frozen=True, slots=True)
class ExactResult:
    """The largest log-probability that was found, and whether it is proven that no other sequence has a larger one."""

    log_probability: float
    is_proven: bool


@torch.inference_mode()
def search_exactly(model: Seq2Seq, memory: Memory, *, bound: float, max_length: int, max_prefixes: int) -> ExactResult:
    """max log p(y | x) over all y, or `bound` if that is larger, by best-first search

    A prefix is at least as probable as every sequence that begins with it, so those below the best complete sequence
    need no extension. The most probable prefixes are extended first, ROWS at a time.
    """
    frontier: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]  # -log p, prefix
    best, extended = bound, 0
    while frontier and -frontier[0][0] > best:
        if extended >= max_prefixes:
            return ExactResult(best, False)
        chosen = [heapq.heappop(frontier) for _ in range(min(ROWS, len(frontier)))]
        chosen = [(cost, prefix) for cost, prefix in chosen if -cost > best]
        extended += len(chosen)
        tokens, mask = pad_rows([[BOS, *prefix] for _, prefix in chosen], PAD)
        copies = select(memory, torch.zeros(len(chosen), dtype=torch.long))
        decoded, _ = model.decoder(tokens, model.decoder.start(copies))
        last = decoded.states[torch.arange(len(chosen)), mask.sum(1) - 1]
        log_probs = model.decoder.project(last).float().log_softmax(-1).double()
        log_probs[:, [PAD, BOS]] = -math.inf
        totals = log_probs - torch.tensor([[cost] for cost, _ in chosen], dtype=torch.double)
        best = max(best, float(totals[:, EOS].max()))
        totals[:, EOS] = -math.inf
        for row, token in (totals > best).nonzero().tolist():
            prefix = (*chosen[row][1], token)
            if len(prefix) < max_length:
                heapq.heappush(frontier, (-float(totals[row, token]), prefix))
    return ExactResult(best, True)


@dataclass(frozen=True, slots=True)
class SizeResult:
    """The translations of all sentences with one beam size."""

    log_probs: list[float]
    qualities: list[float]  # chrF of each sentence
    lengths: list[int]  # in pieces


def draw_curve(
    lab: Lab,
    *,
    sizes: Sequence[int],
    sentences: int,
    joined: int,
    max_prefixes: int,
    sample: str = MODEL,
    widened: bool = True,
) -> Findings:
    """Translate with every beam size, and search exactly; `joined` sentences of the test set make one source.

    With `widened=False`, every beam has the smallest size.
    """
    translator = load(sample, threads=1)
    assert isinstance(translator.engine, TorchEngine)
    model = translator.engine.model
    sides = [join_lines(lines, joined, sentences, lab.seed) for lines in read_sample(sample, "test")]
    rows = [[*ids, EOS] for ids in encode_texts(translator.source, sides[0])]
    results: dict[int, SizeResult] = {}
    best = [-math.inf] * len(rows)
    for size in sizes:
        log_probs, texts, lengths = [], [], []
        search = Beam(size if widened else min(sizes), length_rule="none", length_penalty=0.0)
        progress = lab.progress(f"beam {size}")
        for first in range(0, len(rows), BATCH_SENTENCES):
            tokens, mask = pad_rows(rows[first : first + BATCH_SENTENCES], PAD)
            with torch.inference_mode():
                memory = model.encoder(tokens, mask)
            limits = DecodingLimits(BOS, EOS, MAX_LENGTH, suppress_tokens=(PAD, BOS))
            for found in search(model.decoder, memory, limits):
                log_probs.append(found.best.log_probability)
                texts += translator.target.decode([found.best.tokens])
                lengths.append(len(found.best.tokens))
            progress(min(first + BATCH_SENTENCES, len(rows)), len(rows))
        qualities = [chrf(chrf_counts(text, [reference])) for text, reference in zip(texts, sides[1], strict=True)]
        results[size] = SizeResult(log_probs, qualities, lengths)
        best = [max(pair) for pair in zip(best, log_probs, strict=True)]
    exact = search_all(lab, model, rows, best, max_prefixes)
    proven = [number for number, result in enumerate(exact) if result.is_proven]
    return summarize(results, exact, proven)


def join_lines(lines: Sequence[str], joined: int, count: int, seed: int) -> list[str]:
    """`count` lines, each of `joined` random lines; the same for both sides."""
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(lines), generator=draw)[: count * joined].view(-1, joined).tolist()
    return [" ".join(lines[number] for number in group) for group in order]


def search_all(
    lab: Lab, model: Seq2Seq, rows: Sequence[list[int]], best: Sequence[float], max_prefixes: int
) -> list[ExactResult]:
    """The exact search of every sentence, from the best translation of all beams."""
    progress, results = lab.progress("exact search"), []
    for number, (row, bound) in enumerate(zip(rows, best, strict=True), 1):
        tokens, mask = pad_rows([row], PAD)
        with torch.inference_mode():
            memory = model.encoder(tokens, mask)
        results.append(search_exactly(model, memory, bound=bound, max_length=MAX_LENGTH, max_prefixes=max_prefixes))
        progress(number, len(rows))
    return results


def summarize(results: dict[int, SizeResult], exact: Sequence[ExactResult], proven: Sequence[int]) -> Findings:
    smallest, largest = min(results), max(results)
    good = min((size for size in results if size >= GOOD_SIZE), default=largest)
    errors: dict[int, Estimate] = {}
    for size, result in results.items():
        missed = sum(result.log_probs[number] < exact[number].log_probability - MARGIN for number in proven)
        errors[size] = estimate_share(missed, max(1, len(proven)))
    gain = difference_of_means(results[good].log_probs, results[smallest].log_probs)
    change = difference_of_means(results[largest].qualities, results[good].qualities)
    checks = (
        Check(
            f"search errors become fewer: {errors[smallest]} of the sentences with beam {smallest}, "
            f"{errors[good]} with beam {good}; the intervals do not overlap",
            errors[good].high < errors[smallest].low,
        ),
        Check(f"with beam {good}, log p is higher than with beam {smallest} by {gain}", gain.low > 0),
        Check(
            f"beam {largest} is not better than beam {good}: chrF changes by {change}, at most {MAX_GAIN:g} more",
            change.high <= MAX_GAIN,
        ),
    )
    qualities = {size: estimate_mean(result.qualities) for size, result in results.items()}
    lengths = {size: estimate_mean(result.lengths) for size, result in results.items()}
    return Findings(
        ResultTable(
            ("beam", "log p", "search errors", "chrF", "pieces"),
            tuple(
                (size, estimate_mean(result.log_probs), errors[size], qualities[size], lengths[size])
                for size, result in results.items()
            ),
        ),
        Chart(
            "Search errors by beam size",
            "beam size",
            "share of sentences with a search error",
            (Series("search errors", tuple(errors.items())),),
            log_x=True,
        ),
        checks,
        (
            f"A search error is a translation that is less probable than the most probable one; the exact search "
            f"proved the latter for {len(proven)} of {len(exact)} sentences.",
        ),
    )


def difference_of_means(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The mean of first - second, sentence by sentence"""
    return estimate_mean([one - other for one, other in zip(first, second, strict=True)])


EXPERIMENT = Experiment(
    title="the beam curve",
    claim="A beam makes fewer search errors than greedy search, but a large beam does not give better translations.",
    sizes={
        "quick": {"sizes": (1, 2, 5, 20), "sentences": 80, "joined": 2, "max_prefixes": 2000},
        "default": {"sizes": (1, 2, 3, 5, 10, 50, 200), "sentences": 250, "joined": 2, "max_prefixes": 20_000},
        "long": {"sizes": (1, 2, 3, 5, 10, 50, 200), "sentences": 160, "joined": 3, "max_prefixes": 200_000},
    },
    function=draw_curve,
    sabotage={"widened": False},
)
