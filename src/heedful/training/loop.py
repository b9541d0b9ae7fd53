"""The training loop.

    for each step:
        batch      from the plan, split into micro-batches
        gradient   of -log p(target | source), label-smoothed, summed over all micro-batches and processes
        spikes     skip the step if the gradient is not finite, or far above recent ones
        weights    clip the gradient, set the learning rate, take an Adam step, update the EMA
        sometimes  log, validate, save

Data and dropout depend only on the step number: the batch is `plan.batch(step)`, and the random generator is seeded
with (seed, step, micro-batch). A checkpoint therefore stores no state of iterators or generators, and a resumed run is
bit-identical to an uninterrupted one.
"""

import hashlib
import json
import math
import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from heedful.config import Settings
from heedful.data.plan import MicroBatch, Plan
from heedful.errors import HeedfulError
from heedful.model.loss import Loss
from heedful.training.checkpoint import checkpoint_folders
from heedful.training.clock import Clock, fit_last_step
from heedful.training.data import Corpora, TrainingData, line_numbers, make_plan, mean_epoch
from heedful.training.distributed import World, make_reducer
from heedful.training.events import Began, Note, Refitted, Skipped, Stepped
from heedful.training.finetune import load_initial_weights
from heedful.training.history import METRICS
from heedful.training.initial_embeddings import initialize_embeddings
from heedful.training.machine import BUSY_SHARE, CoreMeter, autocast, explain_out_of_memory
from heedful.training.metrics_log import MetricsLog, seconds_at_end
from heedful.training.model_state import ModelState
from heedful.training.optimizer import gradient_norm, learning_rate_at, scale_gradients_, set_learning_rate
from heedful.training.saver import CheckpointSaver
from heedful.training.signals import EXIT_CODES, StopRequest
from heedful.training.snapshots import SnapshotRecorder
from heedful.training.spikes import Verdict
from heedful.training.state import BestValidation, TrainingResult, TrainingState
from heedful.training.throughput import ThroughputMeter
from heedful.training.time_budget import TimeBudget
from heedful.training.validate import mark_best, validate, value_to_maximize
from heedful.training.weights import initialize_model, named_weights

MAX_SHOWN_LINES = 20  # of a skipped batch


class Interrupted(HeedfulError):
    """A signal stopped the run early; a checkpoint was saved."""

    def __init__(self, exit_code: int, step: int, run: str) -> None:
        super().__init__(
            f"stopped after step {step:,}, which is saved; to continue, run the same command again. To get a model of "
            f"what has been learned so far: {shlex.join(['heedful', 'train', run, '--finish'])}"
        )
        self.exit_code = exit_code


class Trainer:
    """Trains a model on one or several processes."""

    def __init__(
        self,
        settings: Settings,
        data: TrainingData,
        world: World,
        device: torch.device,
        log: MetricsLog,
        budget: TimeBudget,
    ) -> None:
        self.options, self.seed, self.data = settings.train, settings.seed, data
        self.world, self.device, self.log, self.budget = world, device, log, budget
        options, folder = self.options, Path(self.options.output_dir)
        is_new = not checkpoint_folders(folder)
        initial_weights = load_initial_weights(settings.init_from) if settings.init_from and is_new else None
        if settings.model and settings.model.embeddings and is_new:
            initial_weights = initialize_embeddings(settings, data, device, log)
        self.plan = self.make_plan(data.corpora)
        self.length = options.time or f"{options.steps} steps"
        self.state = TrainingState(Clock(options.steps or 0, options.refits), length=self.length)
        make_model = partial(initialize_model, settings, data.prepared, device)
        self.model_state = ModelState(make_model, options, world, initial_weights)
        self.reducer = make_reducer(
            self.model_state.model, world, device, is_sharded=self.model_state.is_sharded, exact=options.exact
        )
        num_keep = max(options.keep_checkpoints, options.average_checkpoints)
        self.saver = CheckpointSaver(folder, self.state, self.model_state, world, device, log, num_keep=num_keep)
        source = data.prepared.tokenizer("source") if data.prepared.has_text_source else None
        self.snapshots = SnapshotRecorder(folder, data.validation, source, data.prepared.tokenizer("target"), device)
        self.throughput = ThroughputMeter()
        self.cores, self.is_busy = CoreMeter(), False
        self.exit_code = 0  # of a stop request to any process

    def train(self, stop_request: StopRequest, *, finish: bool = False) -> TrainingResult:
        """Resume if possible, then train to the last step or until a stop is requested; `finish`: train no further."""
        options, state = self.options, self.state
        self.budget.earlier_seconds = self.saver.resume(self.budget.elapsed)
        if finish:
            state.end_reason = state.end_reason or f"finished on request, of {state.clock.end:,} steps"
        elif state.length != self.length:
            self.change_length()
        was_finished = state.end_reason is not None
        self.log_start()
        self.model_state.model.train()
        while state.end_reason is None:
            if self.train_step(stop_request) == "roll back":
                continue  # the restored step is already validated and saved
            is_last = state.step >= state.clock.end
            if state.step % options.log_every == 0 or is_last:
                self.log_step()
            if state.step % self.validate_every == 0 or is_last:
                self.validate()
            if is_last and state.end_reason is None:
                state.end_reason = "all steps are done" if options.time is None else "the time limit is reached"
            if self.is_checkpoint_due or state.end_reason or self.exit_code:
                with self.throughput.paused():
                    regular = self.is_checkpoint_due or state.end_reason is not None
                    self.saver.save(self.budget.elapsed, regular=regular)
            if self.exit_code and state.end_reason is None:
                raise Interrupted(self.exit_code, state.step, options.output_dir)
        best_step = state.best.step
        return TrainingResult(state.step, state.end_reason, best_step, self.model_state, self.budget, was_finished)

    def change_length(self) -> None:
        """Continue a run whose `train.time` or `train.steps` was changed: refit the schedule to the new last step."""
        options, state, budget = self.options, self.state, self.budget
        end = options.steps or 0
        if options.time is not None and state.step:
            budget.earlier_seconds = max(budget.earlier_seconds, seconds_at_end(self.log.path, state.step))
            pace = state.step / max(1e-9, budget.earlier_seconds)
            end = fit_last_step(state.step, budget.elapsed, pace, budget.usable_seconds)
            end = int(self.world.broadcast([float(end)], self.device)[0])
        if end <= state.step:  # what is left is for the final scoring
            state.end_reason = state.end_reason or "the time limit is reached"
            return
        state.clock = state.clock.refit(state.step, end) if state.step else Clock(end, options.refits)
        state.end_reason, state.validations_since_best, state.length = None, 0, self.length
        self.log(Refitted(state.step, end))

    def train_step(self, stop_request: StopRequest) -> Verdict:
        """Take one step, or skip it if its gradient is a spike."""
        options, state, model = self.options, self.state, self.model_state.model
        state.step += 1
        micro_batches = self.plan.batch_of_rank(state.batch_index, self.world.rank, self.world.ranks)
        losses = [
            self.forward_backward(index, micro_batch)
            for index, micro_batch in enumerate(self.reducer.accumulate(micro_batches))
        ]
        smoothed, nll, tokens, new_end = self.reduce_losses(losses, stop_request)
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        norm = gradient_norm(gradients) * self.reducer.gradient_scale / tokens
        verdict, state.spike_guard = state.spike_guard.check(smoothed, norm, options.skip_spikes_above or None)
        if verdict == "take":
            clip = min(1.0, options.clip_norm / norm) if options.clip_norm and norm > 0 else 1.0
            scale_gradients_(gradients, clip * self.reducer.gradient_scale / tokens)
            learning_rate = learning_rate_at(options, state.clock, state.step)
            set_learning_rate(self.model_state.optimizer, learning_rate)
            self.model_state.optimizer.step()
            if self.model_state.ema:
                self.model_state.ema.update(named_weights(model).values(), state.step)
            state.tokens += int(tokens)
            self.throughput.add_step(smoothed, nll, tokens, norm, learning_rate)
        else:
            self.skip_step(verdict, smoothed / tokens, norm)
        if new_end and verdict != "roll back":
            state.clock = state.clock.refit(state.step, new_end)
            self.log(Refitted(state.step, new_end))
        return verdict

    def forward_backward(self, index: int, micro_batch: MicroBatch) -> Loss:
        """The loss of a micro-batch; adds its gradient to the weights. Dropout depends on seed, step and index."""
        batch = self.data.load_batch(micro_batch).to(self.device)
        global_index = self.world.rank + index * self.world.ranks
        torch.manual_seed(micro_batch_seed(self.seed, self.state.step + self.state.offset, global_index))
        with explain_out_of_memory(batch, self.options.micro_batches or 1):
            with autocast(self.device, self.options.precision or "fp32"):
                loss: Loss = self.reducer.model(batch)
            loss.smoothed.backward()
        return loss

    def reduce_losses(self, losses: list[Loss], stop_request: StopRequest) -> tuple[float, float, float, int]:
        """Loss, -log p and tokens, summed over all processes, and the new last step or 0; sets `exit_code`."""
        smoothed = math.fsum(float(loss.smoothed.detach()) for loss in losses)
        nll = math.fsum(float(loss.nll) for loss in losses)
        tokens = math.fsum(loss.tokens for loss in losses)
        new_end = 0
        if self.world.is_first:  # only its clock counts
            pace = self.throughput.steps_per_second
            new_end = self.budget.new_last_step(self.state.step, self.state.clock.end, pace)
        stops = [float(stop_request.exit_code == code) for code in EXIT_CODES.values()]
        values = self.world.all_reduce([smoothed, nll, tokens, float(new_end), *stops], self.device)
        self.exit_code = next((code for code, count in zip(EXIT_CODES.values(), values[4:], strict=True) if count), 0)
        return values[0], values[1], values[2], int(values[3])

    def make_plan(self, corpora: Corpora) -> Plan:
        sizes = {"batch_tokens": self.options.batch_tokens, "micro_batches": self.options.micro_batches or 1}
        return make_plan(self.data.prepared, corpora, seed=self.seed, **sizes)

    @property
    def validate_every(self) -> int:
        return self.options.validate_every or 1

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether a regular checkpoint is due: by step number only, because rollbacks must be reproducible."""
        return self.state.step % (self.options.save_every or 1) == 0 or self.state.step % self.validate_every == 0

    def skip_step(self, verdict: Verdict, loss: float, norm: float) -> None:
        """Log the skipped batch; then roll back or stop, if that is the verdict."""
        step, lines = self.state.step, line_numbers(self.plan.batch(self.state.batch_index), self.data.corpora)
        self.log(Skipped(step, verdict, loss, norm, lines[:MAX_SHOWN_LINES]))
        if verdict == "roll back":
            self.saver.roll_back()
        elif verdict == "stop":
            raise HeedfulError(
                f"step {step:,}: the loss is still not finite after rolling back to a checkpoint. Lower "
                f"train.learning_rate (now {self.options.learning_rate}) or train.clip_norm, and check the lines "
                f'listed in {Path(self.options.output_dir) / METRICS} under "skipped"'
            )

    def log_start(self) -> None:
        corpora = self.data.stored_corpora
        last_step = self.state.clock.end if self.state.end_reason is None else self.state.step
        # Unregularized: the tokens of later epochs are not sampled yet.
        passes = mean_epoch(self.make_plan(corpora).epoch_positions(last_step), corpora, self.data.num_pairs)
        self.log(
            Began(
                step=self.state.step,
                steps=last_step,
                parameters=sum(weight.numel() for weight in self.model_state.model.parameters()),
                pairs=self.data.num_pairs,
                passes=passes,
                seconds=self.budget.remaining,
                ranks=self.world.ranks,
                device=str(self.device),
                precision=self.options.precision or "fp32",
            )
        )
        self.throughput.start()

    def note_load(self) -> None:
        """Note when other programs begin or stop to take a large share of the cores."""
        wait_share = self.cores.wait_share
        self.cores.restart()
        if not self.is_busy and wait_share > BUSY_SHARE:
            self.log(
                Note(
                    f"the machine is busy: this run waits {wait_share:.0%} of its time for a free core",
                    step=self.state.step,
                )
            )
        elif self.is_busy and wait_share < BUSY_SHARE / 2:
            self.log(Note("the machine is free again", step=self.state.step))
        self.is_busy = wait_share > (BUSY_SHARE / 2 if self.is_busy else BUSY_SHARE)

    def log_step(self) -> None:
        if self.throughput.is_empty:
            return
        self.note_load()
        state, pace = self.state, self.throughput.steps_per_second
        averages = self.throughput.take_averages()
        self.log(
            Stepped(
                step=state.step,
                steps=state.clock.end,
                tokens=state.tokens,
                epoch=mean_epoch(
                    self.plan.epoch_positions(state.step + state.offset), self.data.corpora, self.data.num_pairs
                ),
                skipped=state.spike_guard.skipped,
                elapsed=self.budget.elapsed,
                remaining=self.budget.estimate_remaining(state.clock.end - state.step, pace),
                **asdict(averages),
            )
        )

    def validate(self) -> None:
        """Validate on the first process; save the best weights; end the run if `patience` is exhausted."""
        options, state = self.options, self.state
        model, weights = self.model_state.eval_model, self.model_state.eval_weights
        with self.throughput.paused():
            self.model_state.update_eval_model()
            value, seconds = 0.0, 0.0
            if self.world.is_first:
                validated = validate(
                    model,
                    self.data.validation,
                    self.snapshots.target,
                    self.device,
                    step=state.step,
                    num_samples=options.show_samples,
                    weights=weights,
                )
                value, seconds = value_to_maximize(validated, options.best_by), validated.seconds
                self.log(mark_best(validated) if value > state.best.metric_value else validated)
                if options.show_samples:
                    self.saver.warn_if_disk_fails(lambda: self.snapshots(model, validated), "snapshot")
            value, seconds = self.world.broadcast([value, seconds], self.device)
            if value > state.best.metric_value:
                state.best, state.validations_since_best = BestValidation(state.step, value, weights), 0
                self.saver.save_best()
            else:
                state.validations_since_best += 1
            self.budget.validation_seconds.append(seconds)
        if options.patience and state.validations_since_best >= options.patience and state.end_reason is None:
            state.end_reason = f"no improvement in the last {state.validations_since_best} validations"


def micro_batch_seed(seed: int, step: int, index: int) -> int:
    return int.from_bytes(hashlib.blake2b(json.dumps([seed, step, index]).encode(), digest_size=7).digest(), "big")
