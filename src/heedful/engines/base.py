"""The protocol of all engines, which translate token ids to hypotheses.

    results = engine.translate([EncodedSource(row=(57, 12, EOS), max_length=20)], SearchOptions(beam=5))

Arguments and results are plain values, so an engine can run in another process or be written in another language.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf
from typing import Any, Protocol

from numpy.typing import NDArray

from heedful.errors import HeedfulError
from heedful.types import Hypothesis

MIN_TEMPERATURE = 1e-3
MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """y_t ~ p(y | y_<t, x), after temperature, then top-k, then top-p; determined by seed and source index."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not MIN_TEMPERATURE <= self.temperature < inf:
            raise HeedfulError(
                f"temperature must be at least {MIN_TEMPERATURE}, not {self.temperature}; to always choose "
                "the best token, do not sample"
            )
        if self.top_k is not None and self.top_k < 1:
            raise HeedfulError(f"top-k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise HeedfulError(f"top-p must be above 0 and at most 1, not {self.top_p}")


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How an engine searches: the `num_best` hypotheses of a beam, or `num_best` samples."""

    beam: int = 5
    num_best: int = 1
    length_rule: str = "power"
    length_penalty: float = 1.0
    sampling: SamplingOptions | None = None
    attention: bool = False  # whether results include cross-attention
    token_scores: bool = True  # whether to return log p of every token, for which an engine may need a second pass
    stopping: str = "likely"  # when a beam is done; engines with only one rule ignore it
    renormalize: bool = False  # whether other tokens share the probability of suppressed ones, as in CTranslate2
    suppress_sequences: tuple[tuple[int, ...], ...] = ()  # tokens that no hypothesis has in this order after its prefix


@dataclass(frozen=True, slots=True)
class EncodedSource:
    """The row of one source: tokens, including the tag and the end token if the model expects them; or features."""

    row: Any  # tuple of ids, or array [S, F]
    max_length: int  # of a hypothesis, in decoding steps
    prefix: tuple[int, ...] = ()  # tokens that a hypothesis must begin with
    index: int = 0  # position among all sources of the caller: sampling depends on it, not on the batch


@dataclass(frozen=True, slots=True)
class EngineResult:
    """A hypothesis, and (on request) the cross-attention of each of its steps."""

    hypothesis: Hypothesis
    attention: NDArray[Any] | None = None  # [layers, heads, steps, slots]
    suppressed: bool = False  # whether it replaces a hypothesis with a suppressed word


def normalized_score(log_probs: Sequence[float], options: SearchOptions) -> float:
    """L / n^alpha (n includes the end token), which ranks a beam; L for greedy search and samples."""
    ranked = options.length_rule == "power" and options.sampling is None and max(options.beam, options.num_best) > 1
    return fsum(log_probs) / float(max(1, len(log_probs)) ** (options.length_penalty if ranked else 0.0))


def translate_by_max_length(
    sources: Sequence[EncodedSource],
    translate_group: Callable[[Sequence[EncodedSource], int], list[tuple[EngineResult, ...]]],
) -> list[tuple[EngineResult, ...]]:
    """Call `translate_group` once per maximum length, for engines with one limit per batch; results in input order."""
    results: dict[int, tuple[EngineResult, ...]] = {}
    for max_length in {source.max_length for source in sources}:
        rows = [row for row, source in enumerate(sources) if source.max_length == max_length]
        results |= zip(rows, translate_group([sources[row] for row in rows], max_length), strict=True)
    return [results[row] for row in range(len(sources))]


def repeat_sources(sources: Sequence[EncodedSource], num_samples: int) -> list[EncodedSource]:
    """Each source `num_samples` times; every copy has its own index."""
    return [
        replace(source, index=num_samples * source.index + sample)
        for source in sources
        for sample in range(num_samples)
    ]


def group_samples(results: Sequence[EngineResult], num_samples: int) -> list[tuple[EngineResult, ...]]:
    """Group every `num_samples` consecutive results, best first."""
    groups = (results[first : first + num_samples] for first in range(0, len(results), num_samples))
    return [sort_by_score(group) for group in groups]


def sort_by_score(results: Sequence[EngineResult]) -> tuple[EngineResult, ...]:
    return tuple(sorted(results, key=lambda result: -result.hypothesis.score))


def check_threads(threads: int | None) -> int | None:
    """`threads`, or HeedfulError if it is out of range; None lets the engine choose."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise HeedfulError(f"threads must be between 1 and {MAX_THREADS:,}, not {threads:,}")
    return threads


class Engine(Protocol):
    """Translates tokens, and scores given translations."""

    name: str

    def translate(self, sources: Sequence[EncodedSource], options: SearchOptions) -> list[tuple[EngineResult, ...]]:
        """Up to `options.num_best` results for each source, best first; the sources are one batch."""
        ...

    def score_targets(
        self, sources: Sequence[EncodedSource], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[EngineResult]:
        """Log p of every token of the targets and of the end token, and (on request) the cross-attention."""
        ...
