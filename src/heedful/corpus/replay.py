"""Replay: fine-tuning also reads the pairs that a model was trained on, so that it forgets less of them.

    heedful train new.en new.de --from old-run/model --replay 0.3 --out new-run

The run that made the model is the directory above it; its heedful.toml names the old corpora.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.config import CorpusSettings, Settings


REPLAY_NAME = "replay"  # the first part of the name of a replayed corpus


def find_run(model: str | Path) -> Path | None:
    """The directory of the run that made a model, if it still exists."""
    folder = Path(model).absolute()
    for run in (folder, folder.parent):
        if (run / "heedful.toml").is_file() and (run / "requested.json").is_file():
            return run
    return None


def add_replay(settings: "Settings", share: float) -> "Settings":
    """The settings with the old corpora added: `share` of the batches come from them, the others from the new ones."""
    from heedful.config import load

    if not settings.init_from:
        raise ConfigError("--replay repeats the pairs a model was trained on: add --from with that model")
    if not 0 < share < 1:
        raise ConfigError(f"--replay {share}: expected a share of the batches between 0 and 1, such as 0.3")
    run = find_run(settings.init_from)
    if run is None:
        raise ConfigError(
            f"--replay needs the run that made {settings.init_from}, but the directory above it is not a run: list the "
            "old corpus as a second [[data.train]] in a heedful.toml, with a `weight` for each"
        )
    old = load(run / "heedful.toml")
    if (old.source, old.target) != (settings.source, settings.target):
        raise ConfigError(
            f"--replay: {run} was trained on {old.source}-{old.target}, and the new pairs are "
            f"{settings.source}-{settings.target}: use the same language codes"
        )
    replayed = [
        corpus.model_copy(update={"name": f"{REPLAY_NAME}{number}", "weight": None})
        for number, corpus in enumerate(old.data.train, 1)
    ]
    languages = (settings.source, settings.target)
    train = (*weigh(settings.data.train, 1 - share, languages), *weigh(replayed, share, languages))
    data = settings.data.model_copy(update={"train": train, "temperature": None})
    return settings.model_copy(update={"data": data})


def weigh(
    corpora: "Sequence[CorpusSettings]", total: float, languages: tuple[str, str]
) -> "tuple[CorpusSettings, ...]":
    """The corpora with weights that sum to `total`: in proportion to their own, or else to the size of their files."""
    from heedful.corpus.readers import resolve_files

    weights = [
        corpus.weight or sum(path.stat().st_size for path in resolve_files(corpus.files, *languages))
        for corpus in corpora
    ]
    return tuple(
        corpus.model_copy(update={"weight": total * max(1e-9, weight) / max(1e-9, sum(weights))})
        for corpus, weight in zip(corpora, weights, strict=True)
    )
