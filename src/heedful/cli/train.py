"""`heedful train`: train a model on sentence pairs."""

from contextlib import ExitStack
from pathlib import Path

import typer

from heedful.corpus.arguments import COLUMNS_HELP, FILES_HELP, INPUT_HELP
from heedful.corpus.texts import training_settings
from heedful.errors import require


def train(
    files: list[str] = typer.Argument(["heedful.toml"], help=f"A heedful.toml, or a run directory; or {FILES_HELP}."),
    out: str | None = typer.Option(None, "--out", help="Run directory to write (default: from the .toml)."),
    time: str | None = typer.Option(None, "--time", help="Total time, such as 40m or 1h30m."),
    steps: int | None = typer.Option(None, "--steps", help="Number of updates, instead of --time."),
    recipe: str | None = typer.Option(
        None, "--recipe", help="Recipe, such as transformer-tiny (default: chosen by the autopilot)."
    ),
    start: str | None = typer.Option(None, "--from", help="Model directory to fine-tune."),
    replay: float | None = typer.Option(
        None, "--replay", help="With --from: share of the batches with pairs the model was trained on, such as 0.3."
    ),
    pair: str | None = typer.Option(None, "--pair", help="Language pair, such as en-de (default: from the files)."),
    columns: str | None = typer.Option(None, "--columns", help=COLUMNS_HELP),
    input: str | None = typer.Option(None, "--input", help=INPUT_HELP),
    sheet: str | None = typer.Option(None, "--sheet", help="Sheet of an .xlsx (default: the first)."),
    validation: list[str] = typer.Option(
        [], "--validation", help="Validation file; repeat for a second file (default: hold out pairs)."
    ),
    test: list[str] = typer.Option([], "--test", help="Test file, scored after training; repeat for a second file."),
    finish: bool = typer.Option(
        False, "--finish", help="Train no further: make a model from what a stopped run has learned."
    ),
    force: bool = typer.Option(False, "--force", help="Train even if heedful check finds errors in the corpus."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write TensorBoard logs to the run directory."),
    sets: list[str] = typer.Option(
        [], "--set", help="Override a setting, such as train.batch_tokens=8192; repeatable."
    ),
) -> None:
    """Train a translator.

    Rerun the command to resume an interrupted run; the result is bit-identical. With another --time or --steps, a
    stopped or finished run continues to its new end. A new run begins with heedful check and stops on errors.

    Without a .toml or a --recipe, the autopilot chooses the model and the training settings from the size of the corpus
    and the speed of this machine. It prints its reasons and writes the settings to autopilot.toml in --out.

    \b
      heedful train train.en train.de --out my-model --time 40m
      heedful train heedful.toml
      heedful train my-model --time 2h
      heedful train my-model --finish
      heedful train corpus.txt --input none --out my-language-model --time 40m
      heedful train captions.tsv --input image --out my-captions --time 40m
      heedful train new.en new.de --from my-model --out my-model-2 --time 20m
      torchrun --nproc-per-node 2 -m heedful train heedful.toml
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("torch", extra="train", whose="heedful train")
    require("polars", extra="train", whose="heedful train")
    settings = training_settings(
        files,
        pair,
        out=out,
        time=time,
        steps=steps,
        recipe=recipe,
        init_from=start,
        replay=replay,
        validation=validation,
        test=test,
        columns=columns,
        sheet=sheet,
        input=input,
        sets=sets,
    )
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

        run_training(settings, finish=finish, force=force, on_event=handle_event, progress=progress)
