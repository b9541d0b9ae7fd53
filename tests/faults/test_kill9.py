"""kill -9 at random moments, inside saves too: the run ends with the bits of the one that was never killed."""

import random

import pytest

from support.training_runs import events, kill_repeatedly, outcome, settings_of, start_training

STEPS, KILLS = 40, 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again_it_ends_with_the_same_bits(corpus, tmp_path, uninterrupted, seed):
    # Saving after every step: half of the time is spent in saves. What was saved when does not change a bit.
    settings = settings_of(corpus, tmp_path / "run", save_every=1)
    tally = kill_repeatedly(
        lambda: start_training(settings),
        tmp_path / "run",
        kills=KILLS,
        steps=STEPS,
        seconds=1.5,
        draw=random.Random(seed),
    )
    assert tally.kills == KILLS, (tmp_path / "run.log").read_text()
    assert tally.unloadable == 0
    assert tally.code == 0, (tmp_path / "run.log").read_text()
    assert outcome(tmp_path / "run") == uninterrupted
    assert [one["step"] for one in events(tmp_path / "run", "stepped")] == list(range(4, STEPS + 1, 4))
