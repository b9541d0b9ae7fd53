"""How length is penalized, and when the search for a sentence ends.

A finished hypothesis of total log-probability L and n tokens is ranked by L / penalty(n). Toolkits differ in whether
the end token counts among the n, and in when they stop; both are tables here, with the conventions of Hugging Face and
CTranslate2 among them, so that their results can be reproduced (a test compares with the originals):

    Hugging Face    length_rule="power", stopping="likely" (its default) or "enough" (early_stopping=True)
    CTranslate2     length_rule="power", stopping="ctranslate2", and min_decoding_length=0 there or min_length=1 here:
                    unlike heedful, it renormalizes what a minimum length leaves, and (`DecodingLimits.renormalize`)
                    what suppressed tokens leave
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# (tokens without the end, ended?, alpha) -> what the total is divided by
LengthPenalty = Callable[[int, bool, float], float]


def no_penalty(tokens: int, ended: bool, alpha: float) -> float:  # noqa: ARG001
    """1: the most probable sequence wins, which favors short ones"""
    return 1.0


def power(tokens: int, ended: bool, alpha: float) -> float:
    """n^alpha, the end token counted            (Hugging Face, CTranslate2; alpha = 1 is the mean log-probability)"""
    return float(max(tokens + ended, 1) ** alpha)


def power_without_end(tokens: int, ended: bool, alpha: float) -> float:  # noqa: ARG001
    """n^alpha, the end token not counted"""
    return float(max(tokens, 1) ** alpha)


def gnmt(tokens: int, ended: bool, alpha: float) -> float:
    """((5 + n) / 6)^alpha, the end token counted            (Wu et al. 2016)"""
    return float(((5 + tokens + ended) / 6) ** alpha)


LENGTH_RULES: dict[str, LengthPenalty] = {
    "none": no_penalty,
    "power": power,
    "power_without_end": power_without_end,
    "gnmt": gnmt,
}


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The state of the search for one sentence after a step, as a stopping rule sees it."""

    finished: Sequence[float]  # scores of the finished hypotheses, best first
    best_live: float  # the best total among the live hypotheses
    top_ended: bool  # whether the best continuation of some step was an end
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
    """No live hypothesis can enter the result any more: totals only fall, so the score of any end is bounded"""
    if len(progress.finished) < progress.num_best:
        return False
    bound = max(progress.score_bound(progress.step), progress.score_bound(progress.max_length))
    return progress.finished[progress.num_best - 1] >= bound


def enough(progress: SearchProgress) -> bool:
    """As many hypotheses are finished as the beam is wide            (Hugging Face, early_stopping=True)"""
    return len(progress.finished) >= progress.beam_size


def likely(progress: SearchProgress) -> bool:
    """A full beam of finished hypotheses beats the best live one at its present length (Hugging Face's default)"""
    size = progress.beam_size
    return len(progress.finished) >= size and progress.finished[size - 1] >= progress.best_live / progress.penalty(
        progress.step, False, progress.alpha
    )


def ctranslate2(progress: SearchProgress) -> bool:
    """A full beam is finished; without a length penalty, `num_best` are and the best continuation has ended"""
    if progress.alpha == 0 or progress.penalty is no_penalty:
        return progress.top_ended and len(progress.finished) >= progress.num_best
    return len(progress.finished) >= progress.beam_size


STOPPING_RULES: dict[str, Callable[[SearchProgress], bool]] = {
    "exact": exact,
    "enough": enough,
    "likely": likely,
    "ctranslate2": ctranslate2,
}
