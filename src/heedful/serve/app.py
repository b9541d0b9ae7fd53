"""The server's HTTP face.

    POST /v1/translate /v1/document                              ours (native.py)
    POST /translate /detect, GET /languages /frontend/settings   LibreTranslate's, JSON or a form
    POST /v2/translate, GET /v2/languages /v2/usage              DeepL's
    POST /language/translate/v2                                  Google's
    GET  / /inspect                                              a page to try it, and a look inside
    GET  /livez /readyz /health /metrics /openapi.json           how it is

A refusal has a status and a body that says why and what to do, in the words of the API that was asked:
400, 401, 403, 408, 413, 422 where the request must change; 429, 503, 504 with Retry-After where it may come again.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful import __version__
from heedful.serve import compat as facades
from heedful.serve import health, native
from heedful.serve.batcher import BUSY, GOING, Refused
from heedful.serve.requests import FORM, bearer, said
from heedful.serve.state import Served, Settings
from heedful.serve.supervisor import Engine

DOCUMENT = "/v1/document"


@dataclass(frozen=True)
class Route:
    """A line of ROUTES."""

    method: str
    path: str
    handler: Callable[[Request], Awaitable[Response]]
    asked: type[BaseModel] | None = None  # in its body
    answers: type[BaseModel] | None = None
    refuses: tuple[int, ...] = ()
    kind: type[Response] = JSONResponse


JSON = "application/json"
ALWAYS = (400, 403, 408, 413, 422, 429, 503, 504)  # what whoever translates may be told
OURS = (401, 408, 413, 422, 429, 503, 504)

ROUTES = (
    Route("POST", "/v1/translate", native.translate, native.Asked, native.Answered, OURS),
    Route("POST", DOCUMENT, native.document, None, None, OURS, PlainTextResponse),
    Route("POST", "/translate", facades.libre, facades.Libre, None, ALWAYS),
    Route("POST", "/detect", facades.detect, facades.Detect, None, ALWAYS),
    Route("GET", "/languages", facades.libre_languages),
    Route("GET", "/frontend/settings", facades.libre_settings),
    Route("POST", "/v2/translate", facades.deepl, facades.DeepL, None, ALWAYS),
    Route("GET", "/v2/languages", facades.deepl_languages, refuses=(403,)),
    Route("GET", "/v2/usage", facades.deepl_usage, refuses=(403,)),
    Route("POST", "/language/translate/v2", facades.google, facades.Google, None, ALWAYS),
    Route("GET", "/", health.home, kind=HTMLResponse),
    Route("GET", "/inspect", health.inspect, refuses=(401, 404, 422, 429, 503, 504), kind=HTMLResponse),
    Route("GET", "/livez", health.livez),
    Route("GET", "/readyz", health.readyz, refuses=(503,)),
    Route("GET", "/health", health.readyz, refuses=(503,)),
    Route("GET", "/metrics", health.metrics, kind=PlainTextResponse),
)


def create(engine: Engine, settings: Settings | None = None) -> "Front":
    """The application around an engine that is started and closed with it."""
    served = Served(engine, settings or Settings())

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        if engine.child is None:
            await engine.start()
        served.batcher.start()
        singer = asyncio.create_task(served.sing())
        yield
        if not served.batcher.draining:
            await served.batcher.drain(time.monotonic() + served.settings.grace)
        singer.cancel()
        await engine.close()

    app = FastAPI(title="heedful", version=__version__, lifespan=life, docs_url=None, redoc_url=None)
    app.state.served = served
    for route in ROUTES:
        app.add_api_route(
            route.path,
            route.handler,
            methods=[route.method],
            operation_id=f"{route.method.lower()}{route.path.replace('/', '_')}",
            response_class=route.kind,
            responses=described(route),
            openapi_extra=body_of(route),
        )
    return Front(app, served)


def described(route: Route) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of its responses."""
    found: dict[int | str, dict[str, Any]] = {200: {"model": route.answers} if route.answers else {}}
    if route.path == DOCUMENT:
        found[200] = {"content": {native.LINES: {}}}  # beside plain text
    return found | {status: {"description": "a refusal, which says why"} for status in route.refuses}


def body_of(route: Route) -> dict[str, Any] | None:
    """What OpenAPI says of its body."""
    if route.path == DOCUMENT:
        return {"requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}}
    if route.asked is None:
        return None
    schema = {"schema": route.asked.model_json_schema()}
    forms = {} if route.asked is native.Asked else {FORM: schema}
    return {"requestBody": {"required": True, "content": {JSON: schema, **forms}}}


class Front:
    """Before anything is parsed: how large a body may be, and whether there is room at all; and statuses counted.

    It stands before the whole framework, because refusing must cost next to nothing: that is how a server stays up.
    Room is made by batches alone. So who was told to come again later, and sends as much before the next batch has been
    taken, is told so again without being read.
    """

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self.app, self.served = app, served
        self.turn, self.sent_away = 0, dict[tuple[str, str], int]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = Sent(scope, self.served) if scope["method"] == "POST" else None

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                self.served.statuses[status] = self.served.statuses.get(status, 0) + 1
                if status == 503 and sent:
                    self.remember(sent)
            await send(message)

        refused = self.foreign(scope) or (self.refused(sent) if sent else None)
        if refused is None:
            await self.app(scope, receive, counted)
            return
        if refused.status == 413:
            await poured_out(receive, 8 * self.served.settings.body)
        await said(scope["path"], refused)(scope, receive, counted)

    def foreign(self, scope: Scope) -> Refused | None:
        """Whether another site's page sent the browser here, or it was lured by a name that is not ours."""
        hosts, headers = self.served.settings.hosts, dict(scope["headers"])
        if hosts is None:
            return None
        named = headers.get(b"host", b"").decode("latin-1").lower()
        name = named.partition("]")[0].lstrip("[") if named.startswith("[") else named.partition(":")[0]
        walked = headers.get(b"sec-fetch-mode") == b"navigate" and scope["path"] == "/"
        if name not in hosts or (headers.get(b"sec-fetch-site") == b"cross-site" and not walked):
            why = "this server answers this machine only, and no other site's pages: start it with --keys or --no-auth"
            return self.served.batcher.refused(403, why)
        return None

    def refused(self, sent: "Sent") -> Refused | None:
        """Why there is no need to read on."""
        batcher, settings = self.served.batcher, self.served.settings
        most = settings.document if sent.path == DOCUMENT else settings.body
        if batcher.draining:
            return batcher.refused(503, GOING, 2.0)
        if batcher.full(sent.client) or self.in_vain(sent):
            return batcher.refused(503, BUSY, batcher.wait)
        if sent.length is None or sent.length > most:
            return batcher.refused(413, f"the body is larger than {most:,} bytes: send less at once")
        return None

    @property
    def smallest(self) -> dict[tuple[str, str], int]:
        """Client and path -> bytes of the smallest body that was sent away since the batcher took its last batch."""
        if self.turn != self.served.batcher.turn:
            self.turn, self.sent_away = self.served.batcher.turn, {}
        return self.sent_away

    def in_vain(self, sent: "Sent") -> bool:
        """Whether the same client has been sent away with no larger a body, and no batch has been taken since."""
        least = self.smallest.get((sent.client or "", sent.path))
        return self.served.batcher.queued > 0 and least is not None and (sent.length or 0) >= least

    def remember(self, sent: "Sent") -> None:
        """It was sent away, after it was read or before."""
        if sent.client and sent.length:
            who = sent.client, sent.path
            self.smallest[who] = min(sent.length, self.smallest.get(who, sent.length))


class Sent:
    """What the head of a request tells: where to, how many bytes (0 where nobody says, None where that is no number).

    And who sends it; None where the key is not in Authorization, or is none.
    """

    def __init__(self, scope: Scope, served: Served) -> None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        self.path: str = scope["path"]
        self.length = int(length) if length.isascii() and length.isdigit() else None
        self.client = served.known(scope["client"][0] if scope["client"] else "?", bearer(headers))


async def poured_out(receive: Receive, most: int) -> None:
    """Read what nobody wants, within reason: a client that is still sending does not hear what is said to it."""
    more, seen = True, 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            while more and seen < most:
                message = await receive()
                seen += len(message.get("body", b""))
                more = message.get("more_body", False)
