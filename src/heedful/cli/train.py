"""`heedful train`: from sentence pairs to a model directory."""

from contextlib import ExitStack
from pathlib import Path

import typer

from heedful.cli.arguments import is_configuration, settings_of
from heedful.errors import ConfigError, require


def train(
    files: list[str] = typer.Argument(
        ["heedful.toml"], help="heedful.toml; or two files, a .tsv, .jsonl, .tmx or .parquet."
    ),
    out: str | None = typer.Option(
        None, "--out", help="Where the run and its model go (default: what the .toml says)."
    ),
    time: str | None = typer.Option(None, "--time", help="How long it may take, from start to end: 40m, 1h30m."),
    steps: int | None = typer.Option(None, "--steps", help="How many updates, instead of a time."),
    recipe: str | None = typer.Option(None, "--recipe", help="Start from a recipe, such as transformer-tiny."),
    start: str | None = typer.Option(None, "--from", help="Go on from a model directory: fine-tune it."),
    pair: str | None = typer.Option(None, "--pair", help="The languages, such as en-de, where no suffix says them."),
    validation: list[str] = typer.Option([], "--validation", help="Files to validate on (default: some are held out)."),
    test: list[str] = typer.Option([], "--test", help="Files to score at the end."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Write curves for TensorBoard beside the run."),
    sets: list[str] = typer.Option([], "--set", help="A setting, such as train.batch_tokens=8192."),
) -> None:
    """Train a translator. Repeating the command goes on where it stopped, to the bit.

    Without a .toml and a --recipe the autopilot chooses the model and how it is trained, by the size of the corpus and
    the speed of this machine; it says why, and writes it to autopilot.toml in --out.

    \b
      heedful train train.en train.de --out my-model --time 40m
      heedful train heedful.toml
      heedful train new.en new.de --from my-model --out my-model-2 --time 20m
      torchrun --nproc-per-node 2 -m heedful train heedful.toml
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("torch", extra="train", whose="heedful train")
    require("polars", extra="train", whose="heedful train")
    if not out and not is_configuration(files):
        raise ConfigError("say where the run and its model go, such as: --out my-model")
    if start and recipe:
        raise ConfigError("--from brings its own model: leave out --recipe")
    if not recipe and not start and not is_configuration(files) and any(one.startswith("model.") for one in sets):
        raise ConfigError(
            "the autopilot chooses the [model] as a whole. Start from a recipe: --recipe transformer-tiny --set ...; "
            "or let it choose, change the autopilot.toml that it writes, and train with that"
        )
    sets = [*asked(out, time, steps), *([f"start={Path(start).absolute().as_posix()}"] if start else []), *sets]
    given = settings_of(files, pair, sets, validation=validation, test=test, recipe=recipe, out=out)
    from heedful.cli.training_display import watching
    from heedful.training.api import train as run
    from heedful.training.events import Event
    from heedful.training.tensorboard import FOLDER, TensorBoard

    with ExitStack() as stack:
        watch, progress = stack.enter_context(watching(given))
        curves = stack.enter_context(TensorBoard(Path(given.train.output_dir) / FOLDER)) if tensorboard else None

        def told(event: Event) -> None:
            watch(event)
            if curves:
                curves(event)

        run(given, on_event=told, progress=progress)


def asked(out: str | None, time: str | None, steps: int | None) -> list[str]:
    """The short options as settings."""
    if time is not None and steps is not None:
        raise ConfigError("give --time or --steps, not both")
    found = [f"train.time={time}"] if time is not None else []
    found += [f"train.steps={steps}"] if steps is not None else []
    return [*found, *([f"train.output_dir={Path(out).absolute().as_posix()}"] if out else [])]
