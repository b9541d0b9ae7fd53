"""The training loop.

    for each step:
        batch      the plan's, cut into micro-batches
        gradient   of -log p(target | source), smoothed, summed over all micro-batches and processes
        guard      not finite, or far above the last ones: the step is skipped
        weights    clip, learning rate of the schedule, Adam; a running mean follows
        now and then: validate, keep the best, save

    model = heedful.train("heedful.toml")        # the same as: heedful train heedful.toml

The step number is all that the data and the dropout depend on: the batch is `plan.batch(step)`, the generator is seeded
by (seed, step, micro-batch). So a checkpoint holds no state of any iterator or generator, and a resumed run gives the
bits of an uninterrupted one.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import Settings, as_settings, parse_duration
from heedful.corpus.launchers import DEFAULT_LAUNCHER, Launcher
from heedful.data.plan import MicroBatch
from heedful.data.prepare import ProgressCallback, prepare
from heedful.data.resampling import ResampledCorpus
from heedful.data.store import PreparedData, open_prepared
from heedful.errors import HeedfulError
from heedful.model.loss import Loss
from heedful.model.seq2seq import Seq2Seq
from heedful.model.shard import shard
from heedful.performance.allocator import keep_freed_memory
from heedful.training import checkpoint
from heedful.training.autopilot import pilot
from heedful.training.clock import Clock, fitted, reserved
from heedful.training.distributed import Averaged, InOrder, Sharded, Sums, Think, World, joined, whole
from heedful.training.events import Began, Note, Refitted, Saved, Skipped, Stepped, Watch
from heedful.training.finetune import first_weights, started
from heedful.training.finish import finish, work_after
from heedful.training.machine import casting, device_of, fitting
from heedful.training.metrics_log import Recorder
from heedful.training.optimizer import (
    Mean,
    moments,
    named,
    norm_of,
    optimizer_of,
    put,
    put_moments,
    rate_at,
    scale,
    set_rate,
)
from heedful.training.resolve import Corpora, batch_of, fresh, now, plan_of, settle
from heedful.training.signals import CODES, Wish, heard
from heedful.training.snapshots import Camera
from heedful.training.spikes import Guard, Verdict
from heedful.training.validate import Held, crowned, held_out, merit, validate

REFITS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)  # shares of the time
STEADY = 10  # steps before a pace is believed
SHOWN_LINES = 20  # of a batch that was skipped


class Interrupted(HeedfulError):
    """Asked to end before the end; the checkpoint is there."""

    def __init__(self, code: int, step: int) -> None:
        super().__init__(f"stopped after step {step:,}, which is saved: the same command goes on from there")
        self.exit_code = code


def train(
    settings: Settings | str | Path,
    *,
    watch: Watch = lambda _event: None,
    launcher: Launcher = DEFAULT_LAUNCHER,
    progress: ProgressCallback = lambda _step: None,
) -> Path:
    """Prepare, train, validate, save; gives the model directory. Repeated, it goes on where it stopped.

    Without a [model], the autopilot chooses everything that is not said.
    """
    began = now()
    keep_freed_memory()
    settings = started(as_settings(settings))
    asked = settings.train.device
    with (
        joined(lambda local_rank: device_of(asked, local_rank)) as (world, device),
        Recorder(Path(settings.train.output_dir), watch, active=world.first) as record,
    ):
        if settings.model is None:
            settings = pilot(
                settings, world, device, launcher=launcher, progress=progress, watch=record, spent=lambda: now() - began
            )
        prepared = prepared_by(world, settings, launcher, progress)
        learned, held = held_out(prepared, settings.train.validate_pairs)
        corpora = regularized(settings, prepared, learned)
        settings = settle(settings, prepared, corpora, world, device, record)
        with heard() as wish:
            run = Run(settings, prepared, corpora, world, device, record, began, held)
            run.resume()
            run.go(wish)
            model = finish(run)
        world.wait()
        return model


def prepared_by(world: World, settings: Settings, launcher: Launcher, progress: ProgressCallback) -> PreparedData:
    """What the first process prepares, opened by all."""
    if world.first:
        prepare(settings, launcher=launcher, progress=progress)
    world.wait()
    return open_prepared(settings.data.prepared_dir)


def regularized(settings: Settings, prepared: PreparedData, learned: Corpora) -> Corpora:
    """The corpora as they are, or with their words cut anew in every pass."""
    amount = settings.tokenizer.subword_regularization
    if not amount:
        return learned
    rows = {corpus.name: corpus.num_rows for corpus in prepared.train}
    return [
        ResampledCorpus(prepared, corpus.name, amount, settings.seed, num_held_out=rows[corpus.name] - corpus.num_rows)
        for corpus in learned
    ]


class Run:
    """One training run: everything that changes, and the acts that change it."""

    def __init__(
        self,
        settings: Settings,
        prepared: PreparedData,
        corpora: Corpora,
        world: World,
        device: torch.device,
        watch: Recorder,
        began: float,
        held: Held,
    ) -> None:
        self.settings, self.prepared, self.corpora, self.held = settings, prepared, corpora, held
        self.world, self.device, self.watch = world, device, watch
        self.chosen, self.folder = settings.train, Path(settings.train.output_dir)
        self.target = prepared.tokenizer("target")
        self.camera = Camera(self.folder, held, prepared.tokenizer("source"), self.target, device)
        self.plan = plan_of(settings, prepared, corpora)
        torch.set_num_threads(self.chosen.threads or 1)
        self.model = fresh(settings, prepared, device)
        if settings.init_from and not checkpoint.steps_in(self.folder):
            self.model.load_state_dict(first_weights(settings.init_from))
        self.sharded = self.chosen.parallel == "fsdp" and world.ranks > 1
        if self.sharded:
            shard(self.model)
        self.optimizer = optimizer_of(self.chosen, self.model)
        self.mean = Mean(self.model, self.chosen.ema) if self.chosen.ema else None
        self.judge = self.model  # whom the first process validates
        if world.first and (self.mean or self.sharded):
            self.judge = fresh(settings, prepared, device)
        self.sums = self._sums()

        self.step = 0
        self.offset = 0  # batches passed over by rolling back
        self.clock = Clock(self.chosen.steps or 0, self.chosen.refits)
        self.guard = Guard()
        self.tokens = 0  # target tokens learned from
        self.best: dict[str, Any] = {"step": None, "merit": -math.inf}
        self.worse = 0  # validations since the best
        self.ended: str | None = None
        self.already = False  # ended before this process began
        self.began, self.before = began, 0.0  # seconds: when this process began, and those of processes before it
        self.log = Log()
        self.next_refit = 0
        self.asked = 0  # the exit code that someone asked for
        self.looks: list[float] = []  # seconds that each validation took
        self.work = work_after(self)  # after the last step, in validations

    def _sums(self) -> Sums:
        if self.sharded:
            return Sharded(self.model, self.world)
        if self.chosen.exact or self.world.ranks == 1:
            return InOrder(self.model, self.world)
        return Averaged(self.model, self.world, self.device)

    # ------------------------------------------------------------------------------------------------ the loop

    def go(self, wish: Wish) -> None:
        """Step after step, to the end or until someone asks to stop."""
        self.announce()
        self.model.train()
        while self.ended is None:
            self.step += 1
            if self.update(wish) == "roll back":
                continue  # now at a step whose looking and saving is done
            if self.step % self.chosen.log_every == 0 or self.step >= self.clock.end:
                self.tell()
            if self.step % self.validate_every == 0 or self.step >= self.clock.end:
                self.validate()
            if self.step >= self.clock.end and self.ended is None:
                self.ended = "all steps are done" if self.limit is None else "the time is over"
            if self.regular or self.ended:
                self.save()
            elif self.asked:
                self.save(regular=False)
            if self.asked and self.ended is None:
                raise Interrupted(self.asked, self.step)

    def update(self, wish: Wish) -> Verdict:
        """One step: gradient, guard, weights; gives the guard's verdict."""
        micros = self.plan.batch_of_rank(self.step - 1 + self.offset, self.world.rank, self.world.ranks)
        losses = self.sums([self.thought(number, micro) for number, micro in enumerate(micros)])
        totals = [math.fsum(float(one) for one in some) for some in zip(*map(plain_numbers, losses), strict=True)]
        smoothed, nll, tokens, end, *asked = self.world.summed(
            [*totals, self.refit_wish(), *(float(wish.code == code) for code in CODES.values())], self.device
        )
        self.asked = next((code for code, count in zip(CODES.values(), asked, strict=True) if count), 0)
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        norm = norm_of(gradients) * self.sums.scale / tokens
        verdict, self.guard = self.guard.judge(smoothed, norm, self.chosen.skip_spikes_above or None)
        if verdict == "take":
            clip = min(1.0, self.chosen.clip_norm / norm) if self.chosen.clip_norm and norm > 0 else 1.0
            scale(gradients, clip * self.sums.scale / tokens)
            rate = rate_at(self.chosen, self.clock, self.step)
            set_rate(self.optimizer, rate)
            self.optimizer.step()
            if self.mean:
                self.mean.update(named(self.model).values(), self.step)
            self.tokens += int(tokens)
            self.log.add(smoothed, nll, tokens, norm, rate)
        else:
            self.skip(verdict, smoothed / tokens, norm)
        if end and verdict != "roll back":
            self.refit(int(end))
        return verdict

    def thought(self, number: int, micro: MicroBatch) -> Think:
        """The loss and gradient of one micro-batch, still to be computed; its dropout depends on its place alone."""

        def think(model: torch.nn.Module) -> Loss:
            batch = batch_of(self.corpora, micro).to(self.device)
            torch.manual_seed(
                seed_of(self.settings.seed, self.step + self.offset, self.world.rank + number * self.world.ranks)
            )
            with fitting(batch, self.chosen.micro_batches or 1):
                with casting(self.device, self.chosen.precision or "fp32"):
                    loss: Loss = model(batch)
                loss.smoothed.backward()
            return loss

        return think

    # ------------------------------------------------------------------------------------------------ guards

    def skip(self, verdict: Verdict, loss: float, norm: float) -> None:
        """Leave the weights alone, write down what the batch was, and roll back or stop where that is the verdict."""
        lines = self.lines()
        self.watch(Skipped(self.step, verdict, loss, norm, lines[:SHOWN_LINES]))
        if verdict == "roll back":
            self.roll_back()
        elif verdict == "stop":
            raise HeedfulError(
                f"step {self.step:,}: the loss is not finite any more, even after going back to a checkpoint. Lower "
                f"train.learning_rate (now {self.chosen.learning_rate}) or train.clip_norm, and look at the lines "
                f'listed in {self.folder / "metrics.jsonl"} under "skipped"'
            )

    def lines(self) -> tuple[tuple[str, int], ...]:
        """The pairs of this step's batch, as corpus and line."""
        found: list[tuple[str, int]] = []
        for micro in self.plan.batch(self.step - 1 + self.offset):
            corpus = self.corpora[micro.corpus]
            stored = corpus.unregularized if isinstance(corpus, ResampledCorpus) else corpus
            found += [(corpus.name, line) for line in stored.line_numbers(micro.rows.tolist())]
        return tuple(found)

    def roll_back(self) -> None:
        """Back to the last regular checkpoint, and past the batches that came after it."""
        bad, seen = self.step + self.offset, self.guard
        found = checkpoint.newest(self.folder, self.warn, regular=True)
        if found is None:
            raise HeedfulError("there is no checkpoint to go back to")
        self.restore(found)
        self.offset = self.watch.offset = bad - self.step
        self.guard = seen.after_rolling_back(self.guard)
        self.warn(f"went back to step {self.step:,}; the batches after it are passed over")

    # ------------------------------------------------------------------------------------------------ the clock

    @property
    def limit(self) -> float | None:
        """Seconds there are in all, in a run by the clock."""
        return None if self.chosen.time is None else parse_duration(self.chosen.time)

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, without the pauses between its processes."""
        return self.before + now() - self.began

    @property
    def reserve(self) -> float:
        """Seconds of the limit for what comes after the last step."""
        return reserved(self.limit or 0.0, self.looks, self.work)

    def refit_wish(self) -> float:
        """The last step that the time has room for, where it is time to ask, or 0; the first process decides."""
        if self.limit is None or not self.world.first:
            return 0.0
        left = self.limit - self.reserve
        if self.elapsed >= left:
            return float(self.step) if self.clock.end > self.step else 0.0
        due = self.next_refit
        while due < len(REFITS) and self.elapsed >= REFITS[due] * left:
            due += 1
        if due == self.next_refit or not self.log.pace:
            return 0.0
        self.next_refit = due
        end = fitted(self.step, self.elapsed, self.log.pace, left)
        return float(end) if abs(end - self.clock.end) > 0.005 * end and end > self.step else 0.0

    def refit(self, end: int) -> None:
        """Move the last step, and write it down."""
        self.clock = self.clock.refit(self.step, end)
        self.watch(Refitted(self.step, end))

    # ------------------------------------------------------------------------------------------------ telling

    def announce(self) -> None:
        """What is about to happen."""
        pairs = sum(corpus.num_rows for corpus in self.corpora)
        # By the plain tokens: those of every epoch to come would all have to be drawn first.
        plain = [corpus.unregularized if isinstance(corpus, ResampledCorpus) else corpus for corpus in self.corpora]
        passes = plan_of(self.settings, self.prepared, plain).epoch_positions(self.clock.end)
        reached = sum((one.epoch + one.fraction) * c.num_rows for one, c in zip(passes, plain, strict=True)) / pairs
        self.watch(
            Began(
                step=self.step,
                steps=self.clock.end,
                parameters=sum(weight.numel() for weight in self.model.parameters()),
                pairs=pairs,
                passes=reached,
                seconds=None if self.limit is None else self.limit - self.elapsed,
                ranks=self.world.ranks,
                device=str(self.device),
                precision=self.chosen.precision or "fp32",
            )
        )
        self.log.begin()

    def tell(self) -> None:
        """The mean of the steps since last time."""
        if not self.log.tokens:
            return
        progress = self.plan.epoch_positions(self.step + self.offset)
        pairs = sum(corpus.num_rows for corpus in self.corpora)
        epoch = (
            sum((one.epoch + one.fraction) * c.num_rows for one, c in zip(progress, self.corpora, strict=True)) / pairs
        )
        loss, perplexity, norm, rate, speed = self.log.means()
        left = (self.clock.end - self.step) / self.log.pace if self.log.pace else 0.0
        self.watch(
            Stepped(
                self.step, self.clock.end, loss, perplexity, norm, rate, self.tokens, speed, epoch,
                self.guard.skipped, self.elapsed, left if self.limit is None else max(0.0, self.limit - self.elapsed),
            )
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ validating

    @property
    def validate_every(self) -> int:
        """Steps."""
        return self.chosen.validate_every or 1

    def judged(self) -> tuple[Seq2Seq, str]:
        """The model to validate, with the weights that would be kept, on the first process; and what to call them."""
        if self.mean or self.sharded:
            found = whole(self.model, self.mean.own if self.mean else named(self.model), self.world)
            if self.world.first:
                put(named(self.judge), found, "validation")
        return self.judge, "ema" if self.mean else "last"

    def validate(self) -> None:
        """Look how good it is, keep it if it is the best, and stop if it has not been for too long."""
        with self.log.paused():
            model, weights = self.judged()
            numbers = [0.0] * 2
            if self.world.first:
                found = validate(
                    model,
                    self.held,
                    self.target,
                    self.device,
                    step=self.step,
                    samples=self.chosen.show_samples,
                    weights=weights,
                )
                better = merit(found, self.chosen.best_by) > self.best["merit"]
                self.watch(crowned(found) if better else found)
                numbers = [merit(found, self.chosen.best_by), found.seconds]
                if self.chosen.show_samples:
                    self.guarded(lambda: self.camera(model, found), "film")
            value, took = self.world.told(numbers, self.device)
            if value > self.best["merit"]:
                self.best, self.worse = {"step": self.step, "merit": value, "weights": weights}, 0
                self.guarded(lambda: self.keep_best(model))
            else:
                self.worse += 1
            self.looks.append(took)
        if self.chosen.patience and self.worse >= self.chosen.patience and self.ended is None:
            self.ended = f"the last {self.worse} validations were no better"

    def keep_best(self, model: Seq2Seq) -> None:
        """The best weights so far, beside the checkpoints."""
        if self.world.first:
            checkpoint.save(
                self.folder, self.step, {"model": named(model)}, {"step": self.step, **self.best}, prefix="best"
            )

    # ------------------------------------------------------------------------------------------------ saving

    @property
    def regular(self) -> bool:
        """Whether a checkpoint is due, by the step alone: where one rolls back to must not depend on the clock."""
        return self.step % (self.chosen.save_every or 1) == 0 or self.step % self.validate_every == 0

    def state(self, *, regular: bool) -> dict[str, Any]:
        """Everything that affects the next bit and is not a tensor."""
        return {
            "step": self.step,
            "offset": self.offset,
            "optimizer_steps": moments(self.optimizer, self.model)[1],
            "guard": self.guard.plain(),
            "steps": self.clock.steps,
            "refits": self.clock.refits,
            "tokens": self.tokens,
            "best": self.best,
            "worse": self.worse,
            "ended": self.ended,
            "elapsed": self.elapsed,
            "regular": regular,
            "ranks": self.world.ranks if self.sharded else None,
            "made_by": {"torch": torch.__version__, "processor": torch.backends.cpu.get_cpu_capability()},
        }

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Everything that affects the next bit and is a tensor; of a sharded run, our pieces."""
        piece = f"-{self.world.rank:05}-of-{self.world.ranks:05}" if self.sharded else ""
        found = {f"model{piece}": named(self.model), f"optimizer{piece}": moments(self.optimizer, self.model)[0]}
        return {**found, **({f"ema{piece}": self.mean.own} if self.mean else {})}

    def save(self, *, regular: bool = True) -> None:
        """A checkpoint; a disk that is full is said aloud, and the last good one stays."""
        with self.log.paused():
            self.guarded(lambda: self.write(regular=regular))

    def warn(self, text: str) -> None:
        """Say aloud what went wrong and was mended."""
        self.watch(Note(text, "warning", self.step))

    def guarded(self, write: Any, what: str = "checkpoint") -> None:
        """Training is worth more than one checkpoint: an error of the disk is a warning."""
        try:
            write()
        except OSError as error:
            self.warn(f"the {what} of step {self.step:,} could not be written ({error}); the last good one stays")

    def write(self, *, regular: bool) -> None:
        """Write, then forget the oldest."""
        begin = now()
        state = self.state(regular=regular)
        if self.sharded:
            self.write_pieces(state)
        elif self.world.first:
            checkpoint.save(self.folder, self.step, self.tensors(), state)
        if self.world.first:
            folder = self.folder / checkpoint.name_of(self.step)
            size = sum(path.stat().st_size for path in folder.iterdir())
            self.watch(Saved(self.step, folder.name, now() - begin, size))
            self.forget()

    def forget(self) -> None:
        """Remove what is old: all but the newest, the last regular ones, and the best that those know of.

        One that was saved because someone asked goes as soon as there is another: interrupted or not, a run has the
        same checkpoints to roll back to and to average.
        """
        regular = [one.name for one in checkpoint.steps_in(self.folder) if checkpoint.state_of(one).get("regular")]
        keep = max(self.chosen.keep_checkpoints, self.chosen.average_checkpoints)
        checkpoint.prune(self.folder, 1, also=frozenset(regular[:keep]))
        bests = [checkpoint.state_of(one).get("best", self.best)["step"] for one in checkpoint.steps_in(self.folder)]
        needed = frozenset(checkpoint.name_of(step, "best") for step in bests if step is not None)
        checkpoint.prune(self.folder, 1, "best", needed)

    def write_pieces(self, state: dict[str, Any]) -> None:
        """Every process its own file; the first makes a checkpoint of them when all are there."""
        part = self.folder / f".tmp-{checkpoint.name_of(self.step)}"
        first = self.world.first
        self.together(lambda: checkpoint.begin(self.folder, self.step) if first else None)
        self.together(lambda: checkpoint.write_tensors(part, self.tensors()))
        self.together(lambda: checkpoint.finish(self.folder, self.step, state) if first else None)

    def together(self, act: Callable[[], object]) -> None:
        """What all processes do with the disk: where one fails, all go on from here in the same way."""
        failed: OSError | None = None
        try:
            act()
        except OSError as error:
            failed = error
        if self.world.summed([float(failed is not None)], self.device)[0]:
            raise failed or OSError("another process could not write its part")

    def resume(self) -> None:
        """Go on from the newest good checkpoint, or write the first: a disk that cannot be written is known early."""
        if self.world.first:
            checkpoint.sweep(self.folder)
        self.world.wait()
        found = checkpoint.newest(self.folder, self.warn)
        own = found.state["step"] if found else -1
        if self.world.summed([abs(own - self.world.told([own], self.device)[0])], self.device)[0]:
            raise HeedfulError(f"{self.folder}: the processes find different checkpoints; all need the same disk")
        unread = [one for one in checkpoint.steps_in(self.folder) if found is None or one.name > found.folder.name]
        self.world.wait()
        if found is None and unread:
            raise HeedfulError(
                f"{self.folder}: none of its checkpoints can be read. Name another folder (--out) for a new run, or "
                "remove them (step-*) to begin this one anew"
            )
        if found is None:
            self.write(regular=True)
            return
        if self.world.first:
            for one in unread:
                checkpoint.set_aside(one)
        self.restore(found)
        self.already = self.ended is not None
        self.watch.rewind(self.step, self.offset)
        self.before = found.state["elapsed"]
        made = found.state["made_by"]
        here = {"torch": torch.__version__, "processor": torch.backends.cpu.get_cpu_capability()}
        if made != here:
            self.watch(
                Note(f"the checkpoint was made with {made}, this is {here}: the last bits may differ", "warning")
            )
        self.watch(Note(f"resumed from {found.folder.name}", step=self.step))

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Put everything back."""
        state, whose = found.state, str(found.folder)
        if state["ranks"] not in (None, self.world.ranks) or (state["ranks"] is None and self.sharded):
            raise HeedfulError(f"{whose} is in {state['ranks'] or 1} pieces; start as many processes")
        piece = f"-{self.world.rank:05}-of-{self.world.ranks:05}" if self.sharded else ""
        put(named(self.model), found.tensors(f"model{piece}"), whose)
        steps = state["optimizer_steps"]
        put_moments(self.optimizer, self.model, found.tensors(f"optimizer{piece}") if steps else {}, steps, whose)
        if self.mean:
            put(self.mean.own, found.tensors(f"ema{piece}"), whose)
        self.step, self.offset, self.tokens = state["step"], state["offset"], state["tokens"]
        self.guard = Guard.of(state["guard"])
        self.clock = Clock(state["steps"], tuple((a, b) for a, b in state["refits"]))
        self.best, self.worse, self.ended = state["best"], state["worse"], state["ended"]


def plain_numbers(loss: Loss) -> tuple[Tensor, Tensor, int]:
    """What is told of a loss, apart from its gradient."""
    return loss.smoothed.detach(), loss.nll, loss.tokens


def seed_of(seed: int, step: int, micro: int) -> int:
    """A seed that belongs to one micro-batch of one step."""
    return int.from_bytes(hashlib.blake2b(json.dumps([seed, step, micro]).encode(), digest_size=7).digest(), "big")


class Log:
    """Sums since the last time someone was told, and the pace."""

    def __init__(self) -> None:
        self.smoothed = self.nll = self.norm = self.rate = 0.0
        self.tokens = self.steps = 0
        self.since = now()
        self.idle = 0.0
        self.pace = 0.0  # steps per second, pauses included; 0 until there were enough
        self._all_steps, self._began = 0, now()

    def begin(self) -> None:
        """The first step is about to begin."""
        self.since = self._began = now()

    def add(self, smoothed: float, nll: float, tokens: float, norm: float, rate: float) -> None:
        """One step."""
        self.smoothed, self.nll, self.tokens = self.smoothed + smoothed, self.nll + nll, self.tokens + int(tokens)
        self.norm, self.rate, self.steps = self.norm + norm, rate, self.steps + 1
        self._all_steps += 1
        if self._all_steps >= STEADY:
            self.pace = self._all_steps / max(1e-9, now() - self._began)

    def means(self) -> tuple[float, float, float, float, float]:
        """Loss, perplexity, norm, learning rate and tokens per second; and start anew."""
        took = max(1e-9, now() - self.since - self.idle)
        found = (
            self.smoothed / self.tokens,
            math.exp(min(700.0, self.nll / self.tokens)),
            self.norm / self.steps,
            self.rate,
            self.tokens / took,
        )
        self.smoothed = self.nll = self.norm = self.idle = 0.0
        self.tokens = self.steps = 0
        self.since = now()
        return found

    def paused(self) -> "Pause":
        """Time that is not training."""
        return Pause(self)


class Pause:
    """`with log.paused():`"""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __enter__(self) -> None:
        self.begin = now()

    def __exit__(self, *_: object) -> None:
        self.log.idle += now() - self.begin
