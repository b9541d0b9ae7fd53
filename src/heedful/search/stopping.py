"""Length penalties and stopping rules of beam search.

A finished hypothesis with total log-probability L and n tokens has the score L / penalty(n). Toolkits differ in whether
n includes the end token and in when they stop. These settings reproduce their results (a test compares them):

    Hugging Face    length_rule="power", stopping="likely" (its default) or "enough" (early_stopping=True)
    CTranslate2     length_rule="power", stopping="ctranslate2", and min_decoding_length=0 there or min_length=1 here.
                    Unlike heedful, it renormalizes after a minimum length removed the end token, and after tokens were
                    suppressed (`DecodingLimits.renormalize` does the latter)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# (tokens without the end token, ended?, alpha) -> divisor of the total
LengthPenalty = Callable[[int, bool, float], float]


def no_penalty(tokens: int, ended: bool, alpha: float) -> float:  # noqa: ARG001
    """1: the score is the log-probability, which favors short sequences"""
    return 1.0


def power(tokens: int, ended: bool, alpha: float) -> float:
    """n^alpha, including the end token            (Hugging Face, CTranslate2; alpha = 1: mean log-probability)"""
    return float(max(tokens + ended, 1) ** alpha)


def power_without_end(tokens: int, ended: bool, alpha: float) -> float:  # noqa: ARG001
    """n^alpha, without the end token"""
    return float(max(tokens, 1) ** alpha)


def gnmt(tokens: int, ended: bool, alpha: float) -> float:
    """((5 + n) / 6)^alpha, including the end token            (Wu et al. 2016)"""
    return float(((5 + tokens + ended) / 6) ** alpha)


LENGTH_RULES: dict[str, LengthPenalty] = {
    "none": no_penalty,
    "power": power,
    "power_without_end": power_without_end,
    "gnmt": gnmt,
}


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The input of a stopping rule: the search of one sentence after a step."""

    finished: Sequence[float]  # scores of the finished hypotheses, best first
    best_live: float  # the best total among the live hypotheses
    top_ended: bool  # whether the best continuation of any step was an end token
    step: int  # tokens of each live hypothesis
    max_length: int
    beam_size: int
    num_best: int  # hypotheses to return
    alpha: float
    penalty: LengthPenalty

    def score_bound(self, tokens: int) -> float:
        """The score of the best live hypothesis if it ended with this many tokens at no further cost."""
        return self.best_live / self.penalty(tokens, True, self.alpha)


def exact(progress: SearchProgress) -> bool:
    """No live hypothesis can still enter the result: totals only decrease, which bounds later scores"""
    if len(progress.finished) < progress.num_best:
        return False
    bound = max(progress.score_bound(progress.step), progress.score_bound(progress.max_length))
    return progress.finished[progress.num_best - 1] >= bound


def enough(progress: SearchProgress) -> bool:
    """`beam_size` hypotheses are finished            (Hugging Face, early_stopping=True)"""
    return len(progress.finished) >= progress.beam_size


def likely(progress: SearchProgress) -> bool:
    """`beam_size` finished hypotheses beat the best live one at its current length (Hugging Face's default)"""
    size = progress.beam_size
    return len(progress.finished) >= size and progress.finished[size - 1] >= progress.best_live / progress.penalty(
        progress.step, False, progress.alpha
    )


def ctranslate2(progress: SearchProgress) -> bool:
    """`beam_size` are finished; without a length penalty, `num_best` are and a best continuation has ended"""
    if progress.alpha == 0 or progress.penalty is no_penalty:
        return progress.top_ended and len(progress.finished) >= progress.num_best
    return len(progress.finished) >= progress.beam_size


STOPPING_RULES: dict[str, Callable[[SearchProgress], bool]] = {
    "exact": exact,
    "enough": enough,
    "likely": likely,
    "ctranslate2": ctranslate2,
}
