"""The guard is a pure function of what it has seen: so these are laws of sequences."""

import json
import math
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.training.spikes import MAX_NONFINITE, MAX_SPIKES, MIN_NORMS, WINDOW, SpikeGuard

SPIKE = 6.0
bad = st.sampled_from([(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf), (math.nan, math.nan)])
good = st.tuples(st.floats(0.1, 10.0), st.floats(0.0, 1e12))
seen = st.lists(st.one_of(good, good, bad), max_size=200)


def judged(guard, steps, deviations=SPIKE):
    """The verdicts on some steps, and the guard after them; a roll-back goes to a guard that has seen nothing."""
    verdicts = []
    for loss, norm in steps:
        verdict, guard = guard.check(loss, norm, deviations)
        if verdict == "roll back":
            guard = guard.after_roll_back(SpikeGuard())
        verdicts.append(verdict)
    return verdicts, guard


def steady(count, norm=1.0):
    """Gradients as they are: none like the one before, all alike."""
    return [(2.0, norm * (1.0 + 0.2 * (number % 3))) for number in range(count)]


@settings(deadline=None)
@given(seen, st.integers(0, 200))
def test_written_down_and_read_again_it_decides_the_same(steps, cut):
    begun, guard = judged(SpikeGuard(), steps[:cut])
    resumed = SpikeGuard.from_json(json.loads(json.dumps(asdict(guard))))
    assert resumed == guard
    ended, last = judged(resumed, steps[cut:])
    assert (begun + ended, last) == judged(SpikeGuard(), steps)


@settings(deadline=None)
@given(seen)
def test_what_is_not_finite_is_never_taken_and_every_skip_is_counted(steps):
    verdicts, guard = judged(SpikeGuard(), steps)
    for (loss, norm), verdict in zip(steps, verdicts, strict=True):
        assert (verdict in ("not finite", "roll back", "stop")) == (not (math.isfinite(loss) and math.isfinite(norm)))
    assert guard.skipped == sum(verdict != "take" for verdict in verdicts)
    assert len(guard.log_norms) <= WINDOW
    assert all(map(math.isfinite, guard.log_norms))


@settings(deadline=None)
@given(bad)
def test_bad_steps_in_a_row_roll_back_once_and_then_stop(step):
    verdicts, guard = judged(SpikeGuard(), [step] * (2 * MAX_NONFINITE))
    skips = ["not finite"] * (MAX_NONFINITE - 1)
    assert verdicts == [*skips, "roll back", *skips, "stop"]
    assert guard.skipped == 2 * MAX_NONFINITE


def test_a_good_step_between_breaks_the_row():
    row = [(math.nan, 1.0)] * (MAX_NONFINITE - 1)
    verdicts, _ = judged(SpikeGuard(), [*row, (1.0, 1.0), *row, (1.0, 1.0)])
    assert "roll back" not in verdicts


def test_a_spike_is_skipped_and_not_learned_from():
    _, guard = judged(SpikeGuard(), steady(MIN_NORMS))
    verdict, after = guard.check(2.0, 1e6, SPIKE)
    assert verdict == "spike"
    assert after.log_norms == guard.log_norms
    assert after.check(2.0, 1.0, SPIKE)[0] == "take"
    assert guard.check(2.0, 1e-6, SPIKE)[0] == "take"  # small gradients do no harm


def test_too_few_steps_call_nothing_a_spike():
    _, guard = judged(SpikeGuard(), steady(MIN_NORMS - 1))
    assert guard.check(2.0, 1e6, SPIKE)[0] == "take"


def test_without_a_limit_nothing_is_a_spike():
    _, guard = judged(SpikeGuard(), steady(MIN_NORMS))
    assert guard.check(2.0, 1e6, None)[0] == "take"


def test_many_spikes_in_a_row_are_the_new_normal():
    _, guard = judged(SpikeGuard(), steady(MIN_NORMS))
    verdicts, after = judged(guard, steady(2 * MAX_SPIKES, 1e6))
    assert verdicts == ["spike"] * (MAX_SPIKES - 1) + ["take"] * (MAX_SPIKES + 1)
    assert min(after.log_norms) == pytest.approx(math.log(1e6), abs=0.5)  # what was before no longer counts


def test_steady_gradients_are_all_taken():
    same, drift = [(2.0, 1.0)] * 300, [(2.0, 1.005**number) for number in range(300)]
    for steps in (same, drift, steady(300)):
        verdicts, _ = judged(SpikeGuard(), steps)
        assert set(verdicts) == {"take"}
