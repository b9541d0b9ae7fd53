"""A busy machine: the speed is that of recent steps, waiting for a core is measured, idle threads sleep early."""

import os
import subprocess
import sys
import time

import pytest

from heedful.cli.app import SPIN_COUNT
from heedful.training import throughput
from heedful.training.machine import CoreMeter, core_seconds
from heedful.training.throughput import STEADY_STEPS, ThroughputMeter

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux counts the time in a run queue"
)


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Time()
    monkeypatch.setattr(throughput, "time", clock)
    return clock


def take_steps(meter, clock, count, seconds):
    for _ in range(count):
        clock.now += seconds
        meter.add_step(1.0, 1.0, 10, 1.0, 0.1)


def test_the_speed_is_that_of_recent_steps(clock):
    """Four times as slow for a minute, then free: after RECENT_SECONDS nothing of the slow time is left."""
    meter = ThroughputMeter()
    take_steps(meter, clock, 60, 1.0)
    assert meter.steps_per_second == pytest.approx(1.0)
    take_steps(meter, clock, 81, 0.25)
    assert meter.steps_per_second == pytest.approx(4.0, rel=0.02)


def test_pauses_are_averaged_over_the_run(clock):
    """Half a second of steps, half a second of validation, again and again: one step per second at two per second."""
    meter = ThroughputMeter()
    for _ in range(200):
        take_steps(meter, clock, 1, 0.5)
        with meter.paused():
            clock.now += 0.5
    assert meter.steps_per_second == pytest.approx(1.0, rel=0.01)


def test_no_speed_before_it_is_reliable(clock):
    meter = ThroughputMeter()
    take_steps(meter, clock, STEADY_STEPS - 1, 1.0)
    assert meter.steps_per_second == 0.0
    take_steps(meter, clock, 1, 1.0)
    assert meter.steps_per_second == pytest.approx(1.0)


def test_slow_steps_are_averaged_over_enough_of_them(clock):
    """Steps of ten seconds: the speed is that of STEADY_STEPS steps, not of the two in RECENT_SECONDS."""
    meter = ThroughputMeter()
    take_steps(meter, clock, 30, 10.0)
    take_steps(meter, clock, 1, 20.0)
    assert meter.steps_per_second == pytest.approx((STEADY_STEPS) / (10.0 * (STEADY_STEPS - 1) + 20.0), rel=0.01)


@linux_only
def test_waiting_for_a_core_is_measured():
    """Two processes that compute on one core each wait for it half of the time."""
    core = min(os.sched_getaffinity(0))
    script = (
        f"import os, time; os.sched_setaffinity(0, {{{core}}}); print(1, flush=True)\n"
        "end = time.time() + 20\nwhile time.time() < end: pass"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as other:
        before = os.sched_getaffinity(0)
        try:
            assert other.stdout is not None
            other.stdout.readline()
            os.sched_setaffinity(0, {core})
            meter = CoreMeter()
            end = time.perf_counter() + 1.5
            while time.perf_counter() < end:
                pass
            assert 0.2 < meter.wait_share < 0.99
            meter.restart()
            assert meter.wait_share < 0.99
        finally:
            os.sched_setaffinity(0, before)
            other.kill()


def test_where_nothing_counts_the_machine_is_free(monkeypatch):
    monkeypatch.setattr("heedful.training.machine.core_seconds", lambda: (0.0, 0.0))
    assert CoreMeter().wait_share == 0.0
    assert all(seconds >= 0 for seconds in core_seconds())


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, SPIN_COUNT),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"),
    ],
)
def test_idle_threads_sleep_early_unless_the_user_decides(environment, expected):
    script = (
        "import sys, os\nfrom heedful.cli import main\nsys.argv = ['heedful', '--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nassert 'torch' not in sys.modules\n"
        "print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    cleared = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_WAIT", "GOMP_"))}
    shown = subprocess.run(
        [sys.executable, "-c", script], env={**cleared, **environment}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines()[-1] == expected
