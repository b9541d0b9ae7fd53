"""Admits the requests of a model, translates them in batches and recovers from crashes of the worker.

admission   a request is admitted if the queue can be drained within `max_wait_seconds`, else it is rejected immediately
batches     one at a time; a batch holds the requests that were queued while the previous one ran
crash       the requests of the batch are retried one by one; a request that crashes the worker MAX_SOLO_CRASHES times
            alone is rejected with 422; after the second such rejection, it is rejected without being translated

Requests whose client disconnected or whose deadline passed are dropped before translation.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any, Protocol

from heedful.serve.admission import Admission
from heedful.serve.protocol import TranslationJob, too_many_tokens_message
from heedful.serve.rejection import DEFAULT_RETRY_SECONDS, OVERLOADED, SHUTTING_DOWN, RequestRejected
from heedful.serve.request_queue import QueuedRequest, RequestQueue, estimate_media_tokens, estimate_tokens
from heedful.serve.supervisor import WorkerCrashed
from heedful.serve.throughput import ThroughputEstimate

MAX_SOLO_CRASHES = 2  # more than 1: a single crash may have another cause
MAX_REMEMBERED_CRASHES = 256  # jobs
CRASHES_ENGINE = "the engine crashes on this request, even when it is translated alone"


class TranslationBackend(Protocol):
    """Translates jobs: the worker supervisor, or a fake in tests."""

    async def translate(self, jobs: Sequence[TranslationJob]) -> list[Any]:
        """Return one result per job."""
        ...


@dataclass(slots=True)
class RequestCounters:
    """Counters of a model for /metrics; a pivot counts for both of its models."""

    admitted: int = 0
    answered: int = 0
    disconnected: int = 0  # before they were translated
    wasted_tokens: int = 0  # of requests whose client disconnected during translation
    expired: int = 0
    batches: int = 0
    batched_tokens: int = 0
    retried: int = 0
    poison: int = 0
    wait_seconds: float = 0.0  # in the queue
    work_seconds: float = 0.0  # of batches


class CrashHistory:
    """How often each job crashed the worker when translated alone; the oldest jobs are forgotten first."""

    def __init__(self) -> None:
        self.crashes_by_hash: OrderedDict[str, int] = OrderedDict()

    def record_crash(self, job: TranslationJob) -> None:
        job_hash = hash_job(job)
        self.crashes_by_hash[job_hash] = self.crashes_by_hash.pop(job_hash, 0) + 1
        if len(self.crashes_by_hash) > MAX_REMEMBERED_CRASHES:
            self.crashes_by_hash.popitem(last=False)

    def is_poison(self, job: TranslationJob) -> bool:
        """Whether the job was recorded more than once; a single record may be a coincidence."""
        return bool(self.crashes_by_hash) and self.crashes_by_hash.get(hash_job(job), 0) > 1


def hash_job(job: TranslationJob) -> str:
    sources = list(job.texts), [sha256(content).hexdigest() for content in job.media]
    return sha256(repr((sources, sorted(job.options.items()))).encode("utf-8", "replace")).hexdigest()


class Batcher:
    """The queue of a model, and the task that translates one batch after another; `admission` is that of all models."""

    def __init__(self, backend: TranslationBackend, admission: Admission | None = None, name: str = "") -> None:
        self.backend, self.admission, self.name = backend, admission or Admission(), name
        self.throughput = ThroughputEstimate()
        self.queue = RequestQueue(self.admission.limits, self.throughput)
        self.admission.queues.append(self.queue)
        self.counters = RequestCounters()
        self.crash_history = CrashHistory()
        self.num_batches_taken = 0  # the queue shrinks only when this increases
        self.request_added = asyncio.Event()
        self.runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.runner = asyncio.create_task(self.run_batches())

    # ------------------------------------------------------------------------------------------------ admission

    def check_admission(
        self, job: TranslationJob, client: str, *, cost_factor: float = 1.0, is_continuation: bool = False
    ) -> int:
        """Return the cost in tokens; raise RequestRejected if a limit is exceeded or the queue is full.

        `cost_factor`, at least 1, is the cost of a token relative to the default beam. A continuation, such as the
        next part of a document, is admitted even if the queue is full or the server is draining.
        """
        limits = self.queue.limits
        if self.admission.is_draining and not is_continuation:
            raise self.reject(503, SHUTTING_DOWN, DEFAULT_RETRY_SECONDS)
        if len(job.texts) > limits.max_request_texts:
            raise self.reject(
                413, f"{len(job.texts):,} texts in one request; send at most {limits.max_request_texts:,}"
            )
        num_tokens = estimate_tokens(job.texts, job.options.get("prefix", "")) + estimate_media_tokens(job.media)
        cost_tokens = ceil(num_tokens * cost_factor)
        if cost_tokens > limits.max_request_tokens:
            raise self.reject(
                413, "about " + too_many_tokens_message(num_tokens, cost_factor, limits.max_request_tokens)
            )
        if self.crash_history.is_poison(job):
            raise self.reject(422, CRASHES_ENGINE)
        if not is_continuation and self.is_full(client, cost_tokens):
            raise self.reject(503, OVERLOADED, self.queue.wait_seconds)
        return cost_tokens

    def admit(self, job: TranslationJob, client: str, cost_tokens: int, timeout_seconds: float) -> QueuedRequest:
        """Queue a job that `check_admission` accepted."""
        result = asyncio.get_running_loop().create_future()
        request = QueuedRequest(job, client, cost_tokens, time.monotonic() + timeout_seconds, result)
        self.counters.admitted += 1
        self.queue.append(request)
        self.request_added.set()
        return request

    def is_full(self, client: str | None, cost_tokens: float = 0.0) -> bool:
        """Whether a request would exceed the capacity of this queue or the memory limit of all queues."""
        return self.queue.is_full(client, cost_tokens) or self.admission.is_memory_full(cost_tokens)

    def reject(self, status: int, message: str, retry_after: float | None = None) -> RequestRejected:
        """Count a rejection by this model and return it, for the caller to raise."""
        rejection = self.admission.reject(status, message, retry_after)
        rejection.model = self.name
        return rejection

    # ------------------------------------------------------------------------------------------------ batches

    async def run_batches(self) -> None:
        """Translate one batch after another; an unexpected error affects only its batch."""
        while True:
            batch = self.queue.running = self.queue.take_batch(self.drop_request)
            self.num_batches_taken += 1
            if not batch:
                self.request_added.clear()
                await self.request_added.wait()
                continue
            try:
                await self.translate_batch(batch)
            except Exception:
                logging.getLogger("heedful").exception("a batch failed; its requests get 503")
                for request in batch:
                    self.abandon(request, "internal error")

    def drop_request(self, request: QueuedRequest) -> None:
        """Count a request that will not be translated; respond with 504 if it timed out."""
        if request.is_settled:
            self.counters.disconnected += 1
            return
        self.counters.expired += 1
        request.result.set_exception(self.reject(504, "timed out in the queue", self.queue.wait_seconds))

    async def translate_batch(self, batch: Sequence[QueuedRequest]) -> None:
        """Translate a batch; after a crash, each request alone."""
        started_at, num_tokens = time.monotonic(), self.queue.running_tokens
        self.counters.wait_seconds += sum(started_at - request.queued_at for request in batch)
        try:
            results = await self.backend.translate([request.job for request in batch])
        except WorkerCrashed:
            await self.retry_one_by_one(batch)
            return
        seconds = time.monotonic() - started_at
        self.counters.batches += 1
        self.counters.batched_tokens += num_tokens
        self.counters.work_seconds += seconds
        self.throughput.record_batch(num_tokens, seconds, self.queue.batch_budget_tokens)
        for request, result in zip(batch, results, strict=True):
            self.deliver(request, result)

    def deliver(self, request: QueuedRequest, result: Any) -> None:
        """Set the result of a request, if its client is still connected."""
        if request.is_settled:
            self.counters.wasted_tokens += request.cost_tokens
            return
        if "error" in result:
            request.result.set_exception(self.reject(int(result["code"]), str(result["error"])))
            return
        self.counters.answered += 1
        request.result.set_result(result)

    async def retry_one_by_one(self, batch: Sequence[QueuedRequest]) -> None:
        """Translate each request of a crashed batch alone, so only the request that crashes the worker fails."""
        for request in batch:
            for _ in range(MAX_SOLO_CRASHES):
                if request.is_settled:
                    break
                self.counters.retried += 1
                try:
                    (result,) = await self.backend.translate([request.job])
                except WorkerCrashed:
                    continue
                self.deliver(request, result)
                break
            else:
                self.counters.poison += 1
                self.crash_history.record_crash(request.job)
                if not request.is_settled:
                    request.result.set_exception(self.reject(422, CRASHES_ENGINE))

    def abandon(self, request: QueuedRequest, message: str) -> None:
        """Reject a request that was admitted but will not be answered."""
        if not request.is_settled:
            request.result.set_exception(self.reject(503, message, DEFAULT_RETRY_SECONDS))

    async def drain(self, deadline: float) -> None:
        """Stop admission, finish admitted requests until the deadline (monotonic clock), and reject the rest.

        The runner stops only when all models are idle: one of them may still produce a pivot text for this one.
        """
        self.admission.is_draining = True
        while not self.admission.is_idle and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self.runner:
            self.runner.cancel()
        for request in (*self.queue.running, *self.queue):
            self.abandon(request, SHUTTING_DOWN)
