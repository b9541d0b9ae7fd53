"""State shared by all requests: the worker, the queue, rate limits and usage counts."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.serve.auth import find_key_name
from heedful.serve.batcher import Batcher
from heedful.serve.protocol import TranslationJob, beam_cost_factor
from heedful.serve.rate_limits import RateLimiter
from heedful.serve.rejection import RATE_LIMITED, RequestRejected
from heedful.serve.request_queue import QueueLimits, estimate_tokens
from heedful.serve.supervisor import WorkerSupervisor

CANARY_SECONDS = 10.0  # longest time without a translation before the engine is tested
MAX_OPEN_DOCUMENTS = 8  # each is held in memory
MAX_CLIENT_DOCUMENTS = 2  # open at once
WaitForDisconnect = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class ServerSettings:
    """Limits and timeouts of the server; the defaults are safe."""

    limits: QueueLimits = field(default_factory=QueueLimits)
    keys: Mapping[str, str] = field(default_factory=dict)  # hash -> name; empty: no key is required
    allowed_hosts: frozenset[str] | None = None  # accepted Host headers; None: any
    max_body_bytes: int = 1 << 20
    max_document_bytes: int = 16 << 20
    max_document_lines: int = 200_000
    body_timeout_seconds: float = 10.0  # for receiving a body; six times as long for a document
    request_timeout_seconds: float = 30.0  # a request can set a shorter one
    client_tokens_per_second: float = 20_000.0
    client_burst_tokens: float = 200_000.0
    shutdown_grace_seconds: float = 30.0  # to finish admitted requests after SIGTERM
    inspect_dir: Path | None = None  # the model directory that /inspect opens


class ServerState:
    """The state of a running server."""

    def __init__(self, supervisor: WorkerSupervisor, settings: ServerSettings) -> None:
        self.supervisor, self.settings = supervisor, settings
        self.batcher = Batcher(supervisor, settings.limits)
        self.rate_limiter = RateLimiter(settings.client_tokens_per_second, settings.client_burst_tokens)
        self.start_time = time.monotonic()
        self.responses_by_status: dict[int, int] = {}
        self.characters_by_account: Counter[str] = Counter()
        self.documents_by_client: Counter[str] = Counter()  # open ones
        self.inspect_lock = asyncio.Lock()

    async def run_canary(self) -> None:
        """Translate a short text when idle, so that readiness reflects a working engine."""
        job = TranslationJob(["a"], {"beam": 1, "tokens": False})
        while True:
            if time.monotonic() - self.supervisor.last_result_time > CANARY_SECONDS / 2:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(self.supervisor.translate([job]), CANARY_SECONDS)
            await asyncio.sleep(CANARY_SECONDS / 4)

    @property
    def faults(self) -> list[str]:
        """Why the server is not ready. A full queue is no fault: under overload, no replica would be left."""
        silent_seconds = time.monotonic() - self.supervisor.last_result_time
        runner = self.batcher.runner
        checks = {
            "draining": self.batcher.is_draining,
            "the engine is starting": not self.supervisor.ready.is_set(),
            "the engine does not answer": not self.batcher.queue.running and silent_seconds > 3 * CANARY_SECONDS,
            "the queue is stalled": runner is None or runner.done(),
        }
        return [fault for fault, is_present in checks.items() if is_present]

    @property
    def model_info(self) -> dict[str, Any]:
        """The worker's description of the model, and whether /inspect is available."""
        return {**self.supervisor.model_info, "inspects": self.settings.inspect_dir is not None}

    def identify_client(self, address: str, key: str | None) -> str | None:
        """The client's id: its key's name or, without keys, its address; None if the key is unknown."""
        if not self.settings.keys:
            return f"address {address}"
        name = find_key_name(self.settings.keys, key or "")
        return name and f"key {name}"

    def require_client(self, address: str, key: str | None) -> str:
        """The client's id; raise RequestRejected (401) if the key is unknown."""
        if client := self.identify_client(address, key):
            return client
        raise RequestRejected(401, "missing or unknown API key: send the header Authorization: Bearer KEY")

    def usage_account(self, client: str) -> str:
        """The name under which characters are counted: the key or, without keys, one name for all addresses."""
        return client if self.settings.keys else ""

    def cost_factor(self, options: Mapping[str, Any]) -> float:
        """Cost of a token relative to the model's default beam, at least 1."""
        return beam_cost_factor(options, self.supervisor.model_info.get("beam", 1))

    async def translate(
        self,
        client: str,
        texts: Sequence[str],
        options: Mapping[str, Any],
        wait_for_disconnect: WaitForDisconnect,
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Translate a request: admission, rate limit, queue, engine."""
        job = TranslationJob(texts, options)
        cost_tokens = self.batcher.check_admission(job, client, cost_factor=self.cost_factor(options))
        if retry_after := self.rate_limiter.spend(client, cost_tokens):  # last, so that other rejections cost no tokens
            raise self.batcher.reject(429, RATE_LIMITED, retry_after)
        max_seconds = self.settings.request_timeout_seconds
        timeout_seconds = min(timeout_seconds or max_seconds, max_seconds)
        return await self.queue_and_wait(job, client, cost_tokens, wait_for_disconnect, timeout_seconds)

    async def queue_and_wait(
        self,
        job: TranslationJob,
        client: str,
        cost_tokens: int,
        wait_for_disconnect: WaitForDisconnect,
        timeout_seconds: float,
    ) -> dict[str, Any]:
        """Queue a job and wait for its result, until the client disconnects or the timeout passes."""
        result = self.batcher.admit(job, client, cost_tokens, timeout_seconds).result
        disconnect = asyncio.create_task(wait_for_disconnect())
        try:
            either: set[asyncio.Future[Any]] = {result, disconnect}
            done, _ = await asyncio.wait(either, timeout=timeout_seconds + 1, return_when=asyncio.FIRST_COMPLETED)
            if result in done:
                answer: dict[str, Any] = result.result()
                num_characters = sum(len(translation["source"]) for translation in answer["translations"])
                self.characters_by_account[self.usage_account(client)] += num_characters
                return answer
            if done:
                raise RequestRejected(499, "the client disconnected")
            raise self.batcher.reject(504, "timed out (send less text per request)", self.batcher.queue.wait_seconds)
        finally:
            disconnect.cancel()
            if not result.done():
                result.cancel()

    # ------------------------------------------------------------------------------------------------ documents

    def acquire_document_slot(self, client: str) -> None:
        """Reserve memory for a document before it is read; raise RequestRejected if too many are open."""
        if (
            self.batcher.is_draining
            or self.batcher.num_open_documents >= MAX_OPEN_DOCUMENTS
            or self.documents_by_client[client] >= MAX_CLIENT_DOCUMENTS
        ):
            raise self.batcher.reject(503, "too many documents are open", 5.0)
        self.batcher.num_open_documents += 1
        self.documents_by_client[client] += 1

    def release_document_slot(self, client: str) -> None:
        self.batcher.num_open_documents -= 1
        self.documents_by_client -= Counter([client])

    async def translate_document(
        self, client: str, lines: Iterable[str], options: Mapping[str, Any], wait_for_disconnect: WaitForDisconnect
    ) -> AsyncIterator[dict[str, Any]]:
        """Translate lines part by part and yield their translations; each part is queued like a request.

        Once the first part is admitted, the others are too, even if the queue is full or the server is draining; above
        the rate limit they wait. Parts are small, so text with more tokens than estimated stays below the limit of a
        request. Every translation has the model's version, which can change between parts.
        """
        limits, cost_factor, has_started = self.settings.limits, self.cost_factor(options), False
        max_part_tokens = int(min(limits.max_batch_tokens, limits.max_request_tokens / 4) / cost_factor)
        for part in split_lines_by_tokens(lines, max_part_tokens):
            job = TranslationJob(part, options)
            cost_tokens = self.batcher.check_admission(
                job, client, cost_factor=cost_factor, continues_document=has_started
            )
            while wait_seconds := self.rate_limiter.spend(client, cost_tokens):
                if not has_started:
                    raise self.batcher.reject(429, RATE_LIMITED, wait_seconds)
                await asyncio.sleep(wait_seconds)
            has_started = True
            answer = await self.queue_and_wait(
                job, client, cost_tokens, wait_for_disconnect, self.settings.request_timeout_seconds
            )
            for translation in answer["translations"]:
                yield {**translation, "version": answer["version"]}


def split_lines_by_tokens(lines: Iterable[str], max_tokens: int, max_lines: int = 128) -> Iterator[list[str]]:
    """Split lines into parts of at most about `max_tokens` tokens; a longer line becomes a separate part."""
    part, remaining_tokens = list[str](), max_tokens
    for line in lines:
        num_tokens = estimate_tokens([line])
        if part and (num_tokens > remaining_tokens or len(part) == max_lines):
            yield part
            part, remaining_tokens = [], max_tokens
        part.append(line)
        remaining_tokens -= num_tokens
    if part:
        yield part
