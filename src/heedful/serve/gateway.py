"""ASGI middleware in front of FastAPI: rejects requests before they are parsed, and counts responses."""

import asyncio
import contextlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serve.batcher import Batcher
from heedful.serve.rejection import (
    DEFAULT_RETRY_SECONDS,
    OVERLOADED,
    SHUTTING_DOWN,
    RequestRejected,
    body_too_large_message,
)
from heedful.serve.requests import REJECTED_BY, error_response, read_authorization
from heedful.serve.state import MEDIA_PATHS, ServerState

DOCUMENT_PATH = "/v1/document"
DRAIN_SECONDS = 5.0  # for discarding the rest of a body that is too large


class Gateway:
    """Checks origin, load and body size of a request from its headers.

    It wraps the whole framework because rejections must be cheap, or an overloaded server collapses. Only a new batch
    frees capacity, so a client that resends a rejected request before the next batch starts is rejected without reading
    the body.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app, self.state = app, state
        self.refusals = {name: RefusedSizes(model.batcher) for name, model in state.models.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        head = RequestHead(scope, self.state) if scope["method"] == "POST" else None

        async def count_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                self.state.responses_by_status[status] = self.state.responses_by_status.get(status, 0) + 1
                if status == 503 and head:
                    self.remember_refusal(head, scope.get(REJECTED_BY))
            await send(message)

        rejection = self.check_origin(scope) or (self.check_load_and_size(head) if head else None)
        if rejection is None:
            await self.app(scope, receive, count_and_send)
            return
        if rejection.status == 413:
            await drain_body(receive, 2 * self.state.settings.max_document_bytes)
        await error_response(scope["path"], rejection)(scope, receive, count_and_send)

    def check_origin(self, scope: Scope) -> RequestRejected | None:
        """Reject a foreign Host header (DNS rebinding) and cross-site requests of browsers."""
        allowed_hosts, headers = self.state.settings.allowed_hosts, dict(scope["headers"])
        if allowed_hosts is None:
            return None
        host = headers.get(b"host", b"").decode("latin-1").lower()
        host = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        follows_link = headers.get(b"sec-fetch-mode") == b"navigate" and scope["path"] == "/"
        is_cross_site = headers.get(b"sec-fetch-site") == b"cross-site" and not follows_link
        if host not in allowed_hosts or is_cross_site:
            message = (
                "this server accepts requests from this machine only: to accept others, start it with --keys "
                "or --no-auth"
            )
            return self.state.admission.reject(403, message)
        return None

    def check_load_and_size(self, head: "RequestHead") -> RequestRejected | None:
        """Reject a request while draining, if its body is too large, or if every model would reject it.

        The headers do not say which model the request is for.
        """
        admission, settings = self.state.admission, self.state.settings
        max_bytes_by_path = dict.fromkeys(MEDIA_PATHS.values(), settings.max_media_bytes)
        max_bytes_by_path[DOCUMENT_PATH] = settings.max_document_bytes
        max_bytes = max_bytes_by_path.get(head.path, settings.max_body_bytes)
        if admission.is_draining:
            return admission.reject(503, SHUTTING_DOWN, DEFAULT_RETRY_SECONDS)
        batchers = [model.batcher for model in self.state.models.values()]
        if all(batcher.is_full(head.client) or self.refusals[batcher.name].includes(head) for batcher in batchers):
            return admission.reject(503, OVERLOADED, min(batcher.queue.wait_seconds for batcher in batchers))
        if head.num_bytes is None or head.num_bytes > max_bytes:
            return admission.reject(413, body_too_large_message(max_bytes))
        return None

    def remember_refusal(self, head: "RequestHead", model: str | None = None) -> None:
        """Record a request that got 503 from a model or, if `model` is None, from the whole server."""
        for name in self.refusals if model is None else (model,):
            self.refusals[name].add(head)


class RefusedSizes:
    """The smallest body that a model refused, by client and path, since its last batch started."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.refused_at_batch = 0  # value of num_batches_taken that `refused_bytes` belongs to
        self.refused_bytes = dict[tuple[str, str], int]()

    @property
    def smallest_bytes(self) -> dict[tuple[str, str], int]:
        if self.refused_at_batch != self.batcher.num_batches_taken:
            self.refused_at_batch, self.refused_bytes = self.batcher.num_batches_taken, {}
        return self.refused_bytes

    def includes(self, head: "RequestHead") -> bool:
        """Whether a body of the same size or smaller was refused for this client, and no batch has started since."""
        min_bytes = self.smallest_bytes.get((head.client or "", head.path))
        is_queue_empty = self.batcher.queue.queued_tokens == 0
        return not is_queue_empty and min_bytes is not None and (head.num_bytes or 0) >= min_bytes

    def add(self, head: "RequestHead") -> None:
        """Record a request that got 503, before or after its body was read."""
        if head.client and head.num_bytes:
            key = head.client, head.path
            self.smallest_bytes[key] = min(head.num_bytes, self.smallest_bytes.get(key, head.num_bytes))


class RequestHead:
    """Path, size and client of a request, from its headers.

    num_bytes   Content-Length; 0 if it is missing, None if it is not a number
    client      None if the key in Authorization is missing or unknown
    """

    def __init__(self, scope: Scope, state: ServerState) -> None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        self.path: str = scope["path"]
        self.num_bytes = int(length) if length.isascii() and length.isdigit() else None
        address = scope["client"][0] if scope["client"] else "?"
        self.client = state.identify_client(address, read_authorization(headers))


async def drain_body(receive: Receive, max_bytes: int) -> None:
    """Read and discard a body, up to a size and a time, because clients read the response only after sending."""
    has_more, num_bytes = True, 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while has_more and num_bytes < max_bytes:
                message = await receive()
                num_bytes += len(message.get("body", b""))
                has_more = message.get("more_body", False)
