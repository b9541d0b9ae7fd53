"""`heedful train`: train a model on sentence pairs."""

from contextlib import ExitStack
from pathlib import Path

import typer

from heedful.cli.arguments import is_settings_file, settings_from_arguments
from heedful.errors import ConfigError, require


def train(
    files: list[str] = typer.Argument(
        ["heedful.toml"], help="A heedful.toml; or two files, or one .tsv, .jsonl, .tmx or .parquet."
    ),
    out: str | None = typer.Option(
        None, "--out", help="The folder of the run and its model (default: from the .toml)."
    ),
    time: str | None = typer.Option(None, "--time", help="Time limit from start to end, such as 40m or 1h30m."),
    steps: int | None = typer.Option(None, "--steps", help="Number of updates, instead of a time limit."),
    recipe: str | None = typer.Option(None, "--recipe", help="Start from a recipe, such as transformer-tiny."),
    start: str | None = typer.Option(None, "--from", help="Fine-tune this model directory."),
    pair: str | None = typer.Option(None, "--pair", help="The languages, such as en-de, if not in the file names."),
    validation: list[str] = typer.Option([], "--validation", help="Files to validate on (default: held-out pairs)."),
    test: list[str] = typer.Option([], "--test", help="Files to score at the end."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also log for TensorBoard, in the run's folder."),
    sets: list[str] = typer.Option([], "--set", help="Override a setting, such as train.batch_tokens=8192."),
) -> None:
    """Train a translator. Repeat the command to resume an interrupted run; the result is the same to the bit.

    Without a .toml and a --recipe, the autopilot chooses the model and the training settings by the size of the corpus
    and the speed of this machine. It prints its reasons and writes the settings to autopilot.toml in --out.

    \b
      heedful train train.en train.de --out my-model --time 40m
      heedful train heedful.toml
      heedful train new.en new.de --from my-model --out my-model-2 --time 20m
      torchrun --nproc-per-node 2 -m heedful train heedful.toml
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("torch", extra="train", whose="heedful train")
    require("polars", extra="train", whose="heedful train")
    if not out and not is_settings_file(files):
        raise ConfigError("say where to write the run and its model, such as: --out my-model")
    if start and recipe:
        raise ConfigError("--from uses the settings of that model: leave out --recipe")
    if not recipe and not start and not is_settings_file(files) and any(text.startswith("model.") for text in sets):
        raise ConfigError(
            "the autopilot chooses the whole [model]. Start from a recipe: --recipe transformer-tiny --set ...; "
            "or let it choose, change the autopilot.toml that it writes, and train with that"
        )
    init_from = [f"init_from={Path(start).absolute().as_posix()}"] if start else []
    sets = [*option_settings(out, time, steps), *init_from, *sets]
    settings = settings_from_arguments(files, pair, sets, validation=validation, test=test, recipe=recipe, out=out)
    from heedful.cli.training_display import show_training
    from heedful.training.api import train as run_training
    from heedful.training.events import Event
    from heedful.training.tensorboard import FOLDER, TensorBoard

    with ExitStack() as stack:
        display, progress = stack.enter_context(show_training(settings))
        board = stack.enter_context(TensorBoard(Path(settings.train.output_dir) / FOLDER)) if tensorboard else None

        def handle_event(event: Event) -> None:
            display(event)
            if board:
                board(event)

        run_training(settings, on_event=handle_event, progress=progress)


def option_settings(out: str | None, time: str | None, steps: int | None) -> list[str]:
    """The options --time, --steps and --out as settings such as `train.steps=10`."""
    if time is not None and steps is not None:
        raise ConfigError("give --time or --steps, not both")
    settings = [f"train.time={time}"] if time is not None else []
    settings += [f"train.steps={steps}"] if steps is not None else []
    return [*settings, *([f"train.output_dir={Path(out).absolute().as_posix()}"] if out else [])]
