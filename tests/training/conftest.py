import pytest

from heedful.training.api import train
from support.training_runs import outcome, settings_of, write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """300 pairs; the first run that needs them prepares them."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def uninterrupted(corpus, tmp_path_factory):
    """What a run comes to that nothing and nobody disturbs."""
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(settings_of(corpus, run))
    return outcome(run)
