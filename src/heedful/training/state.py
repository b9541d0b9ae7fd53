"""The state of a run besides tensors: the JSON part of a checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from heedful.training.clock import Clock
from heedful.training.model_state import ModelState
from heedful.training.spikes import SpikeGuard
from heedful.training.time_budget import TimeBudget


@dataclass(frozen=True, slots=True)
class BestValidation:
    """The best validation so far."""

    step: int | None = None
    metric_value: float = -math.inf
    weights: str | None = None


@dataclass
class TrainingState:
    """The progress of a run."""

    clock: Clock
    step: int = 0
    offset: int = 0  # batches skipped by rollbacks
    spike_guard: SpikeGuard = field(default_factory=SpikeGuard)
    tokens: int = 0  # target tokens trained on
    best: BestValidation = field(default_factory=BestValidation)
    validations_since_best: int = 0
    end_reason: str | None = None
    length: str = ""  # as requested, such as "40m" or "8000 steps"

    @property
    def batch_index(self) -> int:
        """The index of this step's batch in the plan, from 0."""
        return self.step - 1 + self.offset

    def to_json(self) -> dict[str, Any]:
        """As JSON values; numbers are not rounded."""
        return {
            "step": self.step,
            "offset": self.offset,
            "spike_guard": asdict(self.spike_guard),
            "steps": self.clock.steps,
            "refits": self.clock.refits,
            "tokens": self.tokens,
            "best": asdict(self.best),
            "validations_since_best": self.validations_since_best,
            "end_reason": self.end_reason,
            "length": self.length,
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Overwrite everything with what `to_json` returned."""
        self.step, self.offset, self.tokens = stored["step"], stored["offset"], stored["tokens"]
        self.spike_guard = SpikeGuard.from_json(stored["spike_guard"])
        self.clock = Clock(stored["steps"], tuple((step, end) for step, end in stored["refits"]))
        self.best = BestValidation(**stored["best"])
        self.validations_since_best, self.end_reason = stored["validations_since_best"], stored["end_reason"]
        self.length = stored.get("length", self.length)  # missing in checkpoints of older versions


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of the loop after the last step."""

    step: int
    end_reason: str
    best_step: int | None
    model_state: ModelState
    budget: TimeBudget
    was_finished: bool  # before this process started, or the user wants a model now: the time limit is past
