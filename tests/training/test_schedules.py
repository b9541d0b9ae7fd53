import itertools
import math

import pytest
import torch
from torch import nn

from heedful.training.schedules import SCHEDULES, constant, cosine, inverse_sqrt, linear, noam_peak


def test_noam_s_worked_values():
    peak = noam_peak(512, 4000)
    assert inverse_sqrt(4000, peak=peak, warmup_steps=4000) == pytest.approx(6.98771e-4, rel=1e-5)
    assert inverse_sqrt(100_000, peak=peak, warmup_steps=4000) == pytest.approx(1.39754e-4, rel=1e-5)
    for step in (1, 17, 4000, 90_000):
        formula = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert inverse_sqrt(step, peak=peak, warmup_steps=4000) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_rises_to_its_peak_and_never_above(kind):
    rates = [SCHEDULES[kind](step, peak=2.0, warmup_steps=10, steps=100) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert max(rates) == rates[9] == 2.0
    assert all(later <= sooner for sooner, later in itertools.pairwise(rates[9:]))
    assert min(rates) >= 0.0


def test_linear_and_cosine_end_at_zero():
    for schedule in (linear, cosine):
        assert schedule(100, peak=1.0, warmup_steps=10, steps=100) == pytest.approx(0.0, abs=1e-12)
        assert schedule(101, peak=1.0, warmup_steps=10, steps=100) == pytest.approx(0.0, abs=1e-12)


def from_torch(make, steps):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def test_cosine_and_linear_are_torch_s():
    cosines = from_torch(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 50), 50)
    lines = from_torch(lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 1e-30, 50), 50)
    for index in range(1, 50):
        assert cosine(index, peak=1.0, steps=50) == pytest.approx(cosines[index], abs=1e-12)
        assert linear(index, peak=1.0, steps=50) == pytest.approx(lines[index], abs=1e-12)
    assert constant(5, peak=3.0) == 3.0
    assert math.isclose(inverse_sqrt(9, peak=1.0, warmup_steps=0), 1 / 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear(1, peak=1.0), "`steps` is required"),
        (lambda: cosine(1, peak=1.0, warmup_steps=5, steps=5), r"steps \(5\) must exceed warmup_steps \(5\)"),
        (lambda: constant(0, peak=1.0), "count from 1, got 0"),
        (lambda: inverse_sqrt(0, peak=1.0, warmup_steps=3), "count from 1, got 0"),
    ],
)
def test_misuse_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()
