"""The form of an experiment: a claim, sizes, and a function that returns findings. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from heedful.lab.outcome import Findings, Settings, Size

Report = Callable[[str, int, int], None]  # what is being done, how many parts of it are done, of how many


def ignore_progress(what: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Lab:
    """What every experiment receives: the seed of all random numbers, and a function that shows progress."""

    seed: int = 1
    report: Report = ignore_progress

    def progress(self, what: str) -> Callable[[int, int], None]:
        """The progress of one part of the experiment: call it with the number of steps done, and of all steps."""
        return lambda done, total: self.report(what, done, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A claim and the function that tests it: function(lab, **settings) -> Findings

    `sizes` has the settings of "quick" and "default", and of "long" if there is a long version. `sabotage` has settings
    that switch the effect off: with them, the verdict has to be "not confirmed".
    """

    title: str
    claim: str  # one sentence
    sizes: Mapping[Size, Settings]
    function: Callable[..., Findings]
    sabotage: Settings = field(default_factory=dict)
