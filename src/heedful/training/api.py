"""`heedful.train(...)`: from settings or sentence pairs to a model directory.

model = heedful.train("heedful.toml")                                     # the same as: heedful train heedful.toml
model = heedful.train("train.en", "train.de", out="my-model", time="40m")
"""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from heedful.config import Settings, parse_duration
from heedful.corpus.launchers import DEFAULT_LAUNCHER, Launcher
from heedful.corpus.texts import Texts, settings_from_texts
from heedful.data.prepare import ProgressCallback
from heedful.errors import suggest_arguments
from heedful.performance.allocator import keep_freed_memory
from heedful.text.tokenizer import SPECIAL, Tokenizer
from heedful.training.checkpoint import check_has_steps
from heedful.training.corpus_check import check_before_training
from heedful.training.distributed import init_distributed
from heedful.training.events import EventHandler, Note
from heedful.training.finish import count_finish_validations, finish_run
from heedful.training.loop import Trainer
from heedful.training.machine import find_device, use_threads
from heedful.training.metrics_log import MetricsLog
from heedful.training.resolve import REQUESTED, load_request, resolve
from heedful.training.signals import catch_signals
from heedful.training.time_budget import TimeBudget

MAX_SHOWN_LABELS = 10
TEXT_FOLDER = "text"  # in the run directory: sentence pairs that were passed as lists


@suggest_arguments
def train(
    source: Settings | Texts,
    target: Texts | None = None,
    *,
    out: str | Path | None = None,
    time: str | None = None,
    steps: int | None = None,
    recipe: str | None = None,
    init_from: str | Path | None = None,
    replay: float | None = None,
    pair: str | None = None,
    validation: Sequence[Texts] = (),
    test: Sequence[Texts] = (),
    columns: str | Sequence[str] | None = None,
    sheet: str | None = None,
    input: str | None = None,
    sets: Sequence[str] = (),
    finish: bool = False,
    force: bool = False,
    on_event: EventHandler = lambda _event: None,
    launcher: Launcher = DEFAULT_LAUNCHER,
    progress: ProgressCallback = lambda _step: None,
) -> Path:
    """Prepare, train, validate and save; return the model directory. If interrupted, call it again to resume.

    `source` is a heedful.toml or its settings; the directory of a run; a file with both languages; or, with `target`,
    a file or a list of lines. The other arguments are the options of `heedful train`: `validation` and `test` are files
    or lists of both sides, `input` is a kind of sources (text, image, audio, none), `init_from` is --from, and `sets`
    lists values of --set. Without a [model], the autopilot chooses every setting that is left open. `finish` makes a
    model from what a stopped run has learned; `force` trains although `heedful check` finds errors in the corpus.
    """
    started = perf_counter()
    keep_freed_memory()
    settings = settings_from_texts(
        source,
        target,
        Path(out) / TEXT_FOLDER if out else None,
        pair=pair,
        validation=validation,
        test=test,
        columns=columns,
        sheet=sheet,
        input=input,
        out=out,
        time=time,
        steps=steps,
        recipe=recipe,
        init_from=init_from,
        replay=replay,
        sets=sets,
    )
    requested = load_request(settings)
    if finish:
        check_has_steps(Path(requested.train.output_dir))
    with (
        init_distributed(lambda local_rank: find_device(requested.train.device, local_rank)) as (world, device),
        MetricsLog(Path(requested.train.output_dir), on_event, active=world.is_first) as log,
    ):
        if world.is_first and not force and not (log.path.parent / REQUESTED).is_file():
            check_before_training(requested, log, progress)
        resolved, data = resolve(
            requested,
            world,
            device,
            launcher=launcher,
            progress=progress,
            on_event=log,
            elapsed_seconds=lambda: perf_counter() - started,
        )
        if resolved.output.kind == "labels":
            log(note_labels(data.prepared.tokenizer("target"), per_slot=resolved.output.per_slot))
        limit_seconds = None if resolved.train.time is None else parse_duration(resolved.train.time)
        budget = TimeBudget(limit_seconds, started, count_finish_validations(data))
        with use_threads(resolved.train.threads or 1), catch_signals() as stop_request:
            result = Trainer(resolved, data, world, device, log, budget).train(stop_request, finish=finish)
            model = finish_run(resolved, data, world, device, log, result)
        world.barrier()
        return model


def note_labels(target: Tokenizer, *, per_slot: bool) -> Note:
    """A message with the number of labels, and the first ones."""
    labels = [label.strip() for label in target.decode([[number] for number in range(len(SPECIAL), target.size)])]
    shown = ", ".join(labels[:MAX_SHOWN_LABELS]) + (", ..." if len(labels) > MAX_SHOWN_LABELS else "")
    what = "each slot of a source gets" if per_slot else "each source gets"
    return Note(
        f"labels: {what} one of {len(labels):,} labels ({shown}). To train a translator instead: "
        "--set output.kind=text",
        "choice",
    )
