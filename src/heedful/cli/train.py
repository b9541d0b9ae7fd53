"""`heedful train`: train a model on sentence pairs."""

from contextlib import ExitStack
from pathlib import Path

import typer

from heedful.cli.arguments import is_settings_file, settings_from_arguments
from heedful.errors import ConfigError, require


def train(
    files: list[str] = typer.Argument(
        ["heedful.toml"], help="A heedful.toml; or two text files, or one .tsv, .jsonl, .tmx or .parquet."
    ),
    out: str | None = typer.Option(None, "--out", help="Run directory to write (default: from the .toml)."),
    time: str | None = typer.Option(None, "--time", help="Total time, such as 40m or 1h30m."),
    steps: int | None = typer.Option(None, "--steps", help="Number of updates, instead of --time."),
    recipe: str | None = typer.Option(
        None, "--recipe", help="Recipe, such as transformer-tiny (default: chosen by the autopilot)."
    ),
    start: str | None = typer.Option(None, "--from", help="Model directory to fine-tune."),
    pair: str | None = typer.Option(
        None, "--pair", help="Language pair, such as en-de (default: from the file names)."
    ),
    validation: list[str] = typer.Option(
        [], "--validation", help="Validation file; repeat for a second file (default: hold out pairs)."
    ),
    test: list[str] = typer.Option([], "--test", help="Test file, scored after training; repeat for a second file."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write TensorBoard logs to the run directory."),
    sets: list[str] = typer.Option(
        [], "--set", help="Override a setting, such as train.batch_tokens=8192; repeatable."
    ),
) -> None:
    """Train a translator.

    Rerun the command to resume an interrupted run; the result is bit-identical.

    Without a .toml or a --recipe, the autopilot chooses the model and the training settings from the size of the corpus
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
        raise ConfigError("no run directory: add one, for example: --out my-model")
    if start and recipe:
        raise ConfigError(
            "--from and --recipe cannot be combined: --from uses the settings of the model it names. Remove --recipe"
        )
    if not recipe and not start and not is_settings_file(files) and any(text.startswith("model.") for text in sets):
        raise ConfigError(
            "--set model.* needs a recipe, because the autopilot chooses all of [model]: add --recipe "
            "transformer-tiny. Or train without --set model.*, edit autopilot.toml in the run directory, "
            "and train with that file"
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
        raise ConfigError("use --time or --steps, not both")
    settings = [f"train.time={time}"] if time is not None else []
    settings += [f"train.steps={steps}"] if steps is not None else []
    return [*settings, *([f"train.output_dir={Path(out).absolute().as_posix()}"] if out else [])]
