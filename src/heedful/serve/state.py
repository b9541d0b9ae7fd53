"""State shared by all requests: the models with their workers and queues, rate limits and usage counts."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError, did_you_mean
from heedful.inputs.kinds import NOUNS
from heedful.serve.admission import Admission
from heedful.serve.auth import find_key_name
from heedful.serve.batcher import Batcher
from heedful.serve.protocol import TEST_JOBS, TranslationJob, beam_cost_factor
from heedful.serve.rate_limits import RateLimiter
from heedful.serve.rejection import DEFAULT_RETRY_SECONDS, OVERLOADED, RATE_LIMITED, RequestRejected
from heedful.serve.request_queue import QueueLimits, estimate_tokens
from heedful.serve.routes import ModelLanguages, TranslationRoute, find_routes, join_translations, select_route
from heedful.serve.supervisor import WorkerSupervisor

CANARY_SECONDS = 10.0  # longest time without a translation before the engine is tested
MAX_OPEN_DOCUMENTS = 8  # each is held in memory
MAX_CLIENT_DOCUMENTS = 2  # open at once
MAX_HELD_BYTES = 96 << 20  # of the bodies that contain files, from before they are read until their response
MAX_CLIENT_HELD_BYTES = MAX_HELD_BYTES // 4
MEDIA_PATHS = {"image": "/v1/caption", "audio": "/v1/transcribe"}
KINDS = {"text": "translates text (POST /v1/translate)"} | {
    kind: f"{NOUNS[kind].task} (POST {path})" for kind, path in MEDIA_PATHS.items()
}
WaitForDisconnect = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class ServerSettings:
    """Limits and timeouts of the server; the defaults are safe."""

    limits: QueueLimits = field(default_factory=QueueLimits)
    keys: Mapping[str, str] = field(default_factory=dict)  # hash -> name; empty: no key is required
    keys_file: Path | None = None  # `heedful serve` reads it again when it changes
    allowed_hosts: frozenset[str] | None = None  # accepted Host headers; None: any
    max_body_bytes: int = 1 << 20
    max_document_bytes: int = 16 << 20
    max_document_lines: int = 200_000
    max_media_bytes: int = 12 << 20  # of a body that contains a picture or recording
    body_timeout_seconds: float = 10.0  # for receiving a body; six times as long for a document or a file
    request_timeout_seconds: float = 30.0  # a request can set a shorter one
    client_tokens_per_second: float = 20_000.0
    client_burst_tokens: float = 200_000.0
    shutdown_grace_seconds: float = 30.0  # to finish admitted requests after SIGTERM
    inspect_dirs: Mapping[str, Path] = field(default_factory=dict)  # model -> the model directory that /inspect opens
    live_pages: Mapping[str, Path] = field(default_factory=dict)  # model -> the page that contains it, for /live


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model: its worker and its queue."""

    supervisor: WorkerSupervisor
    batcher: Batcher

    @property
    def kind(self) -> str:
        """The kind of its sources: text, image or audio."""
        return str(self.supervisor.model_info.get("input"))

    @property
    def languages(self) -> ModelLanguages:
        """Its languages; the source of a model of pictures is `image`, of recordings `audio`."""
        info = self.supervisor.model_info
        return ModelLanguages(self.supervisor.name, str(info.get("source")), str(info.get("target")))

    def cost_factor(self, options: Mapping[str, Any]) -> float:
        """Cost of a token relative to the model's default beam, at least 1."""
        return beam_cost_factor(options, self.supervisor.model_info.get("beam", 1))

    @property
    def faults(self) -> list[str]:
        """Why the model is not ready. A full queue is no fault: under overload, no replica would be left."""
        silent_seconds = time.monotonic() - self.supervisor.last_result_time
        runner = self.batcher.runner
        checks = {
            "the engine is starting": not self.supervisor.ready.is_set(),
            "the engine does not answer": not self.batcher.queue.running and silent_seconds > 3 * CANARY_SECONDS,
            "the queue is stalled": runner is None or runner.done(),
        }
        return [fault for fault, is_present in checks.items() if is_present]

    async def run_canary(self) -> None:
        """Translate a short text (or describe a dot) when idle, so that readiness reflects a working engine."""
        while True:
            if time.monotonic() - self.supervisor.last_result_time > CANARY_SECONDS / 2:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(self.supervisor.translate([TEST_JOBS[self.kind]]), CANARY_SECONDS)
            await asyncio.sleep(CANARY_SECONDS / 4)


@dataclass(frozen=True, slots=True)
class RouteStep:
    """A model of a route and the options for it (fields of TranslationOptions)."""

    model: ServedModel
    options: Mapping[str, Any]


class ServerState:
    """The state of a running server."""

    def __init__(self, supervisors: Sequence[WorkerSupervisor], settings: ServerSettings) -> None:
        self.settings = settings
        self.admission = Admission(settings.limits)
        self.models = {
            supervisor.name: ServedModel(supervisor, Batcher(supervisor, self.admission, supervisor.name))
            for supervisor in supervisors
        }
        if len(self.models) < len(supervisors):
            raise ConfigError("two models have the same name: WorkerSupervisor(..., name=...) sets another one")
        self.keys = settings.keys  # replaced when the keys file changes
        self.rate_limiter = RateLimiter(settings.client_tokens_per_second, settings.client_burst_tokens)
        self.start_time = time.monotonic()
        self.responses_by_status: dict[int, int] = {}
        self.characters_by_account: Counter[str] = Counter()
        self.documents_by_client: Counter[str] = Counter()  # open ones
        self.held_bytes_by_client: Counter[str] = Counter()  # of pictures and recordings
        self.inspect_lock = asyncio.Lock()

    async def drain(self, deadline: float) -> None:
        """Stop admission, finish admitted requests until the deadline (monotonic clock), and reject the rest."""
        await asyncio.gather(*(model.batcher.drain(deadline) for model in self.models.values()))

    @property
    def faults(self) -> list[str]:
        """Why the server is not ready; with several models, each fault begins with the name of its model."""
        prefixes = {name: f"{name}: " if len(self.models) > 1 else "" for name in self.models}
        faults = [prefixes[name] + fault for name, model in self.models.items() for fault in model.faults]
        return ["draining"] * self.admission.is_draining + faults

    def describe_models(self) -> list[dict[str, Any]]:
        """The workers' descriptions of their models, and whether /inspect and /live are available."""
        return [
            {
                "name": name,
                **model.supervisor.model_info,
                "inspects": model.kind == "text" and name in self.settings.inspect_dirs,
                "live": name in self.settings.live_pages,
            }
            for name, model in self.models.items()
        ]

    # ------------------------------------------------------------------------------------------------ routes

    @property
    def routes(self) -> tuple[TranslationRoute, ...]:
        """Routes of texts."""
        return self.find_routes("text")

    def find_routes(self, kind: str) -> tuple[TranslationRoute, ...]:
        """The routes whose sources are of a kind: text, image or audio."""
        routes = find_routes(tuple(model.languages for model in self.models.values()))
        return tuple(route for route in routes if self.models[route.models[0]].kind == kind)

    @property
    def media_routes(self) -> dict[str, tuple[TranslationRoute, ...]]:
        """The routes of pictures and of recordings, by their kind."""
        return {kind: self.find_routes(kind) for kind in MEDIA_PATHS}

    def select_route(
        self, source: str | None, target: str | None, name: str | None = None, kind: str = "text"
    ) -> TranslationRoute:
        """The route between two languages, or of the model `name`; raise RequestRejected (400) if there is none."""
        if name is None:
            if not (routes := self.find_routes(kind)):
                raise RequestRejected(400, f"no model of this server {KINDS[kind]}")
            return select_route(routes, source, target)
        if name not in self.models:
            raise RequestRejected(400, f"there is no model `{name}`{did_you_mean(name, self.models)}")
        if self.models[name].kind != kind:
            raise RequestRejected(400, f"`{name}` {KINDS[self.models[name].kind]}")
        languages = self.models[name].languages
        return select_route([TranslationRoute(languages.source, languages.target, (name,))], source, target)

    def plan_steps(self, route: TranslationRoute, options: Mapping[str, Any]) -> list[RouteStep]:
        """The steps of a route; a forced prefix, tokens and alternatives belong to the last one."""
        models = [self.models[name] for name in route.models]
        if route.via is None:
            return [RouteStep(models[0], options)]
        if options.get("tag"):
            raise RequestRejected(422, f"tag: not supported for {route}: translate in two requests, via {route.via}")
        last_options = {**options, "confidence": False}
        first_options = {**last_options, "prefix": "", "tokens": False, "num_best": 1}
        return [RouteStep(models[0], first_options), RouteStep(models[1], last_options)]

    # ------------------------------------------------------------------------------------------------ clients

    def identify_client(self, address: str, key: str | None) -> str | None:
        """The client's id: its key's name or, without keys, its address; None if the key is unknown."""
        if not self.keys:
            return f"address {address}"
        name = find_key_name(self.keys, key or "")
        return name and f"key {name}"

    def require_client(self, address: str, key: str | None) -> str:
        """The client's id; raise RequestRejected (401) if the key is missing or wrong."""
        if client := self.identify_client(address, key):
            return client
        if key:
            raise RequestRejected(401, "wrong API key: check the key, or ask for a new one")
        raise RequestRejected(401, "missing API key: send the header Authorization: Bearer KEY")

    def usage_account(self, client: str) -> str:
        """The name under which characters are counted: the key or, without keys, one name for all addresses."""
        return client if self.keys else ""

    # ------------------------------------------------------------------------------------------------ translation

    async def translate(
        self,
        client: str,
        route: TranslationRoute,
        texts: Sequence[str],
        options: Mapping[str, Any],
        wait_for_disconnect: WaitForDisconnect,
        timeout_seconds: float | None = None,
        *,
        media: Sequence[bytes] = (),
    ) -> dict[str, Any]:
        """Translate texts, or describe files: admission, rate limit, queue, engine."""
        steps = self.plan_steps(route, options)
        costs = self.check_admission(steps, texts, client, media=media)
        if retry_after := self.rate_limiter.spend(client, sum(costs)):  # last, so that other rejections cost no tokens
            raise self.admission.reject(429, RATE_LIMITED, retry_after)
        max_seconds = self.settings.request_timeout_seconds
        timeout_seconds = min(timeout_seconds or max_seconds, max_seconds)
        return await self.run_steps(
            steps, route.via, texts, client, costs[0], wait_for_disconnect, timeout_seconds, media=media
        )

    def check_admission(
        self,
        steps: Sequence[RouteStep],
        texts: Sequence[str],
        client: str,
        *,
        is_continuation: bool = False,
        media: Sequence[bytes] = (),
    ) -> list[int]:
        """The cost of each step in tokens; raise RequestRejected if the queue of any is full.

        The pivot text is not known yet: its length is assumed to be that of the source, or that of an empty caption.
        """
        return [
            step.model.batcher.check_admission(
                TranslationJob(texts, step.options, () if number else media),
                client,
                cost_factor=step.model.cost_factor(step.options),
                is_continuation=is_continuation,
            )
            for number, step in enumerate(steps)
        ]

    async def run_steps(
        self,
        steps: Sequence[RouteStep],
        via: str | None,
        texts: Sequence[str],
        client: str,
        cost_tokens: int,
        wait_for_disconnect: WaitForDisconnect,
        timeout_seconds: float,
        *,
        media: Sequence[bytes] = (),
    ) -> dict[str, Any]:
        """Translate admitted texts step by step; `cost_tokens` is the cost of the first step, the timeout is of all."""
        deadline = time.monotonic() + timeout_seconds
        num_characters = sum(map(len, texts))
        first, *others = steps
        job = TranslationJob(texts, first.options, media)
        self.admission.num_open_pivots += via is not None
        try:
            answer = await self.queue_and_wait(first.model, job, client, cost_tokens, wait_for_disconnect, deadline)
            for step in others:
                job = TranslationJob([translation["text"] for translation in answer["translations"]], step.options)
                (cost_tokens,) = self.check_admission([step], job.texts, client, is_continuation=True)
                last_answer = await self.queue_and_wait(
                    step.model, job, client, cost_tokens, wait_for_disconnect, deadline
                )
                answer = join_answers(answer, last_answer, via)
        finally:
            self.admission.num_open_pivots -= via is not None
        self.characters_by_account[self.usage_account(client)] += num_characters
        return answer

    async def queue_and_wait(
        self,
        model: ServedModel,
        job: TranslationJob,
        client: str,
        cost_tokens: int,
        wait_for_disconnect: WaitForDisconnect,
        deadline: float,
    ) -> dict[str, Any]:
        """Queue a job and wait for its result, until the client disconnects or the deadline (monotonic clock)."""
        batcher, timeout_seconds = model.batcher, deadline - time.monotonic()
        result = batcher.admit(job, client, cost_tokens, timeout_seconds).result
        disconnect = asyncio.create_task(wait_for_disconnect())
        try:
            either: set[asyncio.Future[Any]] = {result, disconnect}
            done, _ = await asyncio.wait(either, timeout=timeout_seconds + 1, return_when=asyncio.FIRST_COMPLETED)
            if result in done:
                answer: dict[str, Any] = result.result()
                return answer
            if done:
                raise RequestRejected(499, "the client disconnected")
            raise batcher.reject(504, "timed out (send less per request)", batcher.queue.wait_seconds)
        finally:
            disconnect.cancel()
            if not result.done():
                result.cancel()

    @contextlib.contextmanager
    def hold_bytes(self, client: str, num_bytes: int) -> Iterator[None]:
        """Reserve memory for a body with a file; raise RequestRejected if all of it, or the client's, is in use."""
        held_bytes = self.held_bytes_by_client
        if held_bytes.total() + num_bytes > MAX_HELD_BYTES or held_bytes[client] + num_bytes > MAX_CLIENT_HELD_BYTES:
            raise self.admission.reject(503, OVERLOADED, DEFAULT_RETRY_SECONDS)
        held_bytes[client] += num_bytes
        try:
            yield
        finally:
            self.held_bytes_by_client -= Counter({client: num_bytes})

    # ------------------------------------------------------------------------------------------------ documents

    def acquire_document_slot(self, client: str) -> None:
        """Reserve memory for a document before it is read; raise RequestRejected if too many are open."""
        if (
            self.admission.is_draining
            or self.admission.num_open_documents >= MAX_OPEN_DOCUMENTS
            or self.documents_by_client[client] >= MAX_CLIENT_DOCUMENTS
        ):
            raise self.admission.reject(503, "too many documents are open", 5.0)
        self.admission.num_open_documents += 1
        self.documents_by_client[client] += 1

    def release_document_slot(self, client: str) -> None:
        self.admission.num_open_documents -= 1
        self.documents_by_client -= Counter([client])

    async def translate_document(
        self,
        client: str,
        route: TranslationRoute,
        lines: Iterable[str],
        options: Mapping[str, Any],
        wait_for_disconnect: WaitForDisconnect,
    ) -> AsyncIterator[dict[str, Any]]:
        """Translate lines part by part and yield their translations; each part is queued like a request.

        Once the first part is admitted, the others are too, even if the queue is full or the server is draining; above
        the rate limit they wait. Parts are small, so text with more tokens than estimated stays below the limit of a
        request. Every translation has the model's version, which can change between parts.
        """
        steps, limits, has_started = self.plan_steps(route, options), self.settings.limits, False
        cost_factor = max(step.model.cost_factor(step.options) for step in steps)
        max_part_tokens = int(min(limits.max_batch_tokens, limits.max_request_tokens / 4) / cost_factor)
        for part in split_lines_by_tokens(lines, max_part_tokens):
            costs = self.check_admission(steps, part, client, is_continuation=has_started)
            while wait_seconds := self.rate_limiter.spend(client, sum(costs)):
                if not has_started:
                    raise self.admission.reject(429, RATE_LIMITED, wait_seconds)
                await asyncio.sleep(wait_seconds)
            has_started = True
            answer = await self.run_steps(
                steps, route.via, part, client, costs[0], wait_for_disconnect, self.settings.request_timeout_seconds
            )
            for translation in answer["translations"]:
                yield {**translation, "version": answer["version"]}


def join_answers(first: Mapping[str, Any], last: Mapping[str, Any], via: str | None) -> dict[str, Any]:
    """One answer from those of the two steps of a pivot."""
    pairs = zip(first["translations"], last["translations"], strict=True)
    return {
        "translations": [join_translations(*pair) for pair in pairs],
        "model": f"{first['model']}+{last['model']}",
        "version": f"{first['version']}+{last['version']}",
        "via": via,
    }


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
