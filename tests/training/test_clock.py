"""The clock's laws: where a step is depends on the journal alone, and every journal ends at the end."""

import itertools
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful import config
from heedful.training.clock import Clock, fit_last_step, reserve_seconds
from heedful.training.finish_progress import FinishProgress
from heedful.training.optimizer import learning_rate_at
from heedful.training.schedules import SCHEDULES
from heedful.training.time_budget import TimeBudget


@st.composite
def clocks(draw):
    """A first estimate, and corrections at later and later steps, each before the end that was known by then."""
    clock = Clock(draw(st.integers(4, 500)))
    at = 0
    for _ in range(draw(st.integers(0, 6))):
        if at + 1 >= clock.end:
            break
        at = draw(st.integers(at + 1, clock.end - 1))
        clock = clock.refit(at, draw(st.integers(at, at + 500)))
    return clock


@settings(deadline=None)
@given(clocks())
def test_positions_rise_from_nothing_to_exactly_the_first_estimate(clock):
    places = [clock.position(step) for step in range(clock.end + 1)]
    assert places[0] == 0.0
    if clock.end > (clock.refits[-1][0] if clock.refits else 0):
        assert places[-1] == clock.steps
    assert all(sooner < later for sooner, later in itertools.pairwise(places))


@settings(deadline=None)
@given(clocks(), st.data())
def test_a_correction_changes_nothing_behind_it(clock, data):
    last = clock.refits[-1][0] if clock.refits else 0
    at = data.draw(st.integers(last, clock.end))
    after = clock.refit(at, data.draw(st.integers(at, at + 500)))
    assert [after.position(step) for step in range(at + 1)] == [clock.position(step) for step in range(at + 1)]


@settings(deadline=None)
@given(clocks())
def test_between_two_corrections_every_step_goes_equally_far(clock):
    marks = sorted({0, clock.end, *(at for at, _ in clock.refits)})
    for begin, end in itertools.pairwise(marks):
        strides = [clock.position(step + 1) - clock.position(step) for step in range(begin, end)]
        assert max(strides) - min(strides) <= 1e-9 * clock.steps  # so no correction makes it jump


@settings(deadline=None)
@given(clocks(), st.sampled_from(sorted(SCHEDULES)))
def test_every_schedule_stays_below_its_peak_and_the_falling_ones_end_at_zero(clock, kind):
    chosen = config.TrainSettings(learning_rate=0.5, schedule=kind, warmup_steps=30)
    rates = [learning_rate_at(chosen, clock, step) for step in range(1, clock.end + 1)]
    assert all(0.0 <= rate <= 0.5 for rate in rates)
    if kind in ("linear", "cosine") and (not clock.refits or clock.end > clock.refits[-1][0]):
        assert rates[-1] == pytest.approx(0.0, abs=1e-15)


def test_a_short_run_is_not_all_warm_up():
    chosen = config.TrainSettings(learning_rate=1.0, schedule="linear", warmup_steps=400)
    rates = [learning_rate_at(chosen, Clock(40), step) for step in range(1, 41)]
    assert max(rates) == rates[9] == 1.0


def test_the_end_cannot_lie_behind():
    with pytest.raises(ValueError, match="after step 10 the last step cannot be 9"):
        Clock(100).refit(10, 9)


@settings(deadline=None)
@given(st.integers(0, 1000), st.floats(0, 100), st.floats(0, 100), st.floats(0, 200))
def test_the_step_that_the_time_ends_at(step, elapsed, rate, limit):
    end = fit_last_step(step, elapsed, rate, limit)
    assert end >= step
    assert end == step + max(0, math.trunc((limit - elapsed) * rate))


@pytest.mark.parametrize(
    ("looks", "kept"),
    [
        ([], 108.0),
        ([1.0], 108.0),
        ([8.0, 7.0, 7.5], 300.0),
        ([8.0, 7.0, 180.0], 320.0),  # the machine stood still: an hour lost a fifth of it once
        ([8.0, 180.0, 7.5, 7.5, 7.4], 300.0),
        ([90.0, 60.0, 7.5, 7.5], 300.0),  # a model that knows nothing writes at length
        ([180.0] * 3, 720.0),
    ],
)
def test_what_is_kept_for_the_end_follows_from_validations_as_they_are(looks, kept):
    assert reserve_seconds(3600.0, looks, finish_validations=40.0) == pytest.approx(kept)


@pytest.mark.parametrize(
    ("limit", "validations", "pace", "expected"),
    [
        (None, [], 0.0, None),  # nothing is known yet
        (None, [], 2.0, 50.0),
        (None, [3.0], 2.0, 50.0 + 10 * 3.0),
        (1000.0, [], 2.0, 1000.0),  # the work after the last step is unknown
        (1000.0, [3.0], 0.0, 1000.0),
        (1000.0, [90.0, 3.0, 3.0], 2.0, 50.0 + 10 * 3.0),
        (60.0, [3.0], 2.0, 60.0),
        (-5.0, [3.0], 2.0, 0.0),
    ],
)
def test_the_time_left_includes_the_work_after_the_last_step(limit, validations, pace, expected):
    budget = TimeBudget(limit, time.perf_counter(), finish_validations=10.0)
    budget.validation_seconds += validations
    assert budget.estimate_remaining(100, pace) == (None if expected is None else pytest.approx(expected, abs=0.5))


def test_after_the_last_step_no_limit_shortens_the_work():
    budget = TimeBudget(5.0, time.perf_counter(), finish_validations=10.0)
    budget.validation_seconds.append(3.0)
    assert budget.estimate_remaining(0, 2.0) == 30.0


def test_the_time_left_at_the_end_follows_the_measured_pace(monkeypatch):
    now = 100.0
    monkeypatch.setattr("heedful.training.finish_progress.perf_counter", lambda: now)
    events = []
    progress = FinishProgress(events.append, 7, units=20.0, unit_seconds=2.0)
    progress.start("weights", 4)
    now += 4.0  # twice as fast as assumed
    progress.start("search", 15)
    now += 30.0  # half as fast
    progress.start("write", 1)
    assert [(event.step, event.task) for event in events] == [(7, "weights"), (7, "search"), (7, "write")]
    assert [event.remaining for event in events] == [40.0, 16.0, pytest.approx(34 / 19)]
    unknown = []
    FinishProgress(unknown.append, 7, units=20.0, unit_seconds=None).start("weights", 4)
    assert unknown[0].remaining is None
