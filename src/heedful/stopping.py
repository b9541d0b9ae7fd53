"""How long a hypothesis is, and when a sentence is done.

A finished hypothesis of total log-probability L and n tokens is ranked by L / penalty(n). Toolkits differ in whether
the end token counts among the n, and in when they stop looking; both are tables here, with the conventions of
Hugging Face and CTranslate2 among them, so that their answers can be reproduced (a test asks the real ones):

    Hugging Face    length="power", stopping="likely" (its default) or "enough" (early_stopping=True)
    CTranslate2     length="power", stopping="ctranslate2", and min_decoding_length=0 there or minimum=1 here: unlike
                    us, it renormalizes what a minimum length leaves, and (`Rules.spread`) what is never said
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# (tokens without the end, ended?, alpha) -> what the total is divided by
Penalty = Callable[[int, bool, float], float]


def none(tokens: int, ended: bool, alpha: float) -> float:  # noqa: ARG001
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


LENGTHS: dict[str, Penalty] = {
    "none": none,
    "power": power,
    "power_without_end": power_without_end,
    "gnmt": gnmt,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the search for one sentence stands after a step."""

    finished: Sequence[float]  # scores of the finished hypotheses, best first
    live: float  # the best total among the live ones, -inf when there is none
    top_ended: bool  # has the very best continuation of some step been an end?
    step: int  # tokens of each live hypothesis
    limit: int  # tokens at most
    size: int  # of the beam
    best: int  # hypotheses asked for
    alpha: float
    penalty: Penalty

    def hope(self, tokens: int) -> float:
        """The score that the best live hypothesis would have with this many tokens and nothing more to pay."""
        return self.live / self.penalty(tokens, True, self.alpha)


def exact(now: Standing) -> bool:
    """No live hypothesis can still enter the answer: a total only falls, so its best end is bounded"""
    if len(now.finished) < now.best:
        return False
    bound = max(now.hope(now.step), now.hope(now.limit))
    return now.finished[now.best - 1] >= bound


def enough(now: Standing) -> bool:
    """As many are finished as the beam is wide            (Hugging Face, early_stopping=True)"""
    return len(now.finished) >= now.size


def likely(now: Standing) -> bool:
    """A full beam of finished ones beats the best live one at its present length (Hugging Face's default)"""
    return len(now.finished) >= now.size and now.finished[now.size - 1] >= now.live / now.penalty(
        now.step, False, now.alpha
    )


def ctranslate2(now: Standing) -> bool:
    """As many finished as the beam is wide; without a length penalty, as asked for, once the top one has ended"""
    if now.alpha == 0 or now.penalty is none:
        return now.top_ended and len(now.finished) >= now.best
    return len(now.finished) >= now.size


STOPPINGS: dict[str, Callable[[Standing], bool]] = {
    "exact": exact,
    "enough": enough,
    "likely": likely,
    "ctranslate2": ctranslate2,
}
