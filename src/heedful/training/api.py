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
from heedful.training.distributed import init_distributed
from heedful.training.events import EventHandler
from heedful.training.finish import count_finish_validations, finish
from heedful.training.loop import Trainer
from heedful.training.machine import find_device, use_threads
from heedful.training.metrics_log import MetricsLog
from heedful.training.resolve import load_request, resolve
from heedful.training.signals import catch_signals
from heedful.training.time_budget import TimeBudget

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
    pair: str | None = None,
    validation: Sequence[Texts] = (),
    test: Sequence[Texts] = (),
    columns: str | Sequence[str] | None = None,
    sheet: str | None = None,
    sets: Sequence[str] = (),
    on_event: EventHandler = lambda _event: None,
    launcher: Launcher = DEFAULT_LAUNCHER,
    progress: ProgressCallback = lambda _step: None,
) -> Path:
    """Prepare, train, validate and save; return the model directory. If interrupted, call it again to resume.

    `source` is a heedful.toml or its settings; a file with both languages; or, with `target`, a file or a list of
    lines. The other arguments are the options of `heedful train`: `validation` and `test` are files or lists of both
    sides, `init_from` is --from, and `sets` lists values of --set. Without a [model], the autopilot chooses every
    setting that is left open.
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
        out=out,
        time=time,
        steps=steps,
        recipe=recipe,
        init_from=init_from,
        sets=sets,
    )
    requested = load_request(settings)
    with (
        init_distributed(lambda local_rank: find_device(requested.train.device, local_rank)) as (world, device),
        MetricsLog(Path(requested.train.output_dir), on_event, active=world.is_first) as log,
    ):
        resolved, data = resolve(
            requested,
            world,
            device,
            launcher=launcher,
            progress=progress,
            on_event=log,
            elapsed_seconds=lambda: perf_counter() - started,
        )
        limit_seconds = None if resolved.train.time is None else parse_duration(resolved.train.time)
        budget = TimeBudget(limit_seconds, started, count_finish_validations(data))
        with use_threads(resolved.train.threads or 1), catch_signals() as stop_request:
            result = Trainer(resolved, data, world, device, log, budget).train(stop_request)
            model = finish(resolved, data, world, device, log, result)
        world.barrier()
        return model
