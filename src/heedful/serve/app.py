"""The server's HTTP routes.

    POST /v1/translate /v1/document /v1/caption /v1/transcribe   heedful's own API (native.py)
    GET  /v1/directions
    POST /translate /detect, GET /languages /frontend/settings   LibreTranslate's API, JSON or a form
    POST /v2/translate, GET /v2/languages /v2/usage              DeepL's API
    POST /language/translate/v2, GET .../languages               Google's API
    GET  / /inspect /live                                        the page, an inspection, the page with the model
    GET  /livez /readyz /health /metrics /openapi.json           health, metrics, API description

Errors have the format of the API that was called. 400, 401, 403, 408, 413 and 422 mean that the request must change;
429, 503 and 504 have Retry-After and can be retried.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel

from heedful import __version__
from heedful.serve import health, native
from heedful.serve.compat import deepl, google, libretranslate
from heedful.serve.gateway import DOCUMENT_PATH, Gateway
from heedful.serve.requests import FORM
from heedful.serve.state import MEDIA_PATHS, ServerSettings, ServerState
from heedful.serve.supervisor import WorkerSupervisor, start_workers

JSON = "application/json"
NATIVE_ERRORS = (400, 401, 408, 413, 422, 429, 503, 504)
VENDOR_ERRORS = (400, 403, 408, 413, 422, 429, 503, 504)


FIRST_DIRECTION = {side: f"$response.body#/directions/0/{side}" for side in ("source", "target")}
DIRECTION_LINKS = {  # OpenAPI links of /v1/directions: a direction can be used in these requests
    "translate_document": {
        "operationId": "post_v1_document",
        "parameters": FIRST_DIRECTION,
        "description": "translate a document in this direction",
    },
    "translate": {
        "operationId": "post_v1_translate",
        "requestBody": FIRST_DIRECTION,
        "description": "add the texts, and translate them in this direction",
    },
}


@dataclass(frozen=True)
class Route:
    """A row of ROUTES: the handler and, for OpenAPI, its request and response."""

    method: str
    path: str
    handler: Callable[[Request], Awaitable[Response]]
    request_model: type[BaseModel] | None = None
    response_model: type[BaseModel] | None = None
    error_statuses: tuple[int, ...] = ()
    response_class: type[Response] = JSONResponse


ROUTES = (
    Route("POST", "/v1/translate", native.translate, native.TranslateRequest, native.TranslateResponse, NATIVE_ERRORS),
    Route("POST", DOCUMENT_PATH, native.translate_document, None, None, NATIVE_ERRORS, PlainTextResponse),
    Route("POST", MEDIA_PATHS["image"], native.caption, native.CaptionRequest, native.MediaResponse, NATIVE_ERRORS),
    Route(
        "POST",
        MEDIA_PATHS["audio"],
        native.transcribe,
        native.TranscriptionRequest,
        native.MediaResponse,
        NATIVE_ERRORS,
    ),
    Route("GET", "/v1/directions", native.directions, None, native.DirectionsResponse),
    Route("POST", "/translate", libretranslate.translate, libretranslate.LibreTranslateRequest, None, VENDOR_ERRORS),
    Route("POST", "/detect", libretranslate.detect, libretranslate.DetectRequest, None, VENDOR_ERRORS),
    Route("GET", "/languages", libretranslate.languages),
    Route("GET", "/frontend/settings", libretranslate.frontend_settings),
    Route("POST", "/v2/translate", deepl.translate, deepl.DeepLRequest, None, VENDOR_ERRORS),
    Route("GET", "/v2/languages", deepl.languages, error_statuses=(403,)),
    Route("GET", "/v2/usage", deepl.usage, error_statuses=(403,)),
    Route("POST", "/language/translate/v2", google.translate, google.GoogleRequest, None, VENDOR_ERRORS),
    Route("GET", "/language/translate/v2/languages", google.languages),
    Route("GET", "/", health.home, response_class=HTMLResponse),
    Route("GET", "/inspect", health.inspect, None, None, (400, 401, 404, 422, 429, 503, 504), HTMLResponse),
    Route("GET", "/live", health.live, None, None, (400, 401, 404, 422, 429), HTMLResponse),
    Route("GET", "/livez", health.livez),
    Route("GET", "/readyz", health.readyz, error_statuses=(503,)),
    Route("GET", "/health", health.readyz, error_statuses=(503,)),
    Route("GET", "/metrics", health.metrics, response_class=PlainTextResponse),
)


def create_app(
    supervisors: WorkerSupervisor | Sequence[WorkerSupervisor], settings: ServerSettings | None = None
) -> Gateway:
    """Return the ASGI application of one or more models. It starts workers that are not running, and stops all."""
    supervisors = [supervisors] if isinstance(supervisors, WorkerSupervisor) else supervisors
    state = ServerState(supervisors, settings or ServerSettings())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await start_workers(supervisors)
        for model in state.models.values():
            model.batcher.start()
        canaries = [asyncio.create_task(model.run_canary()) for model in state.models.values()]
        yield
        if not state.admission.is_draining:
            await state.drain(time.monotonic() + state.settings.shutdown_grace_seconds)
        for canary in canaries:
            canary.cancel()
        await asyncio.gather(*(supervisor.close() for supervisor in supervisors))

    app = FastAPI(title="heedful", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.server_state = state
    for route in ROUTES:
        app.add_api_route(
            route.path,
            route.handler,
            methods=[route.method],
            operation_id=f"{route.method.lower()}{route.path.replace('/', '_')}",
            response_class=route.response_class,
            responses=describe_responses(route),
            openapi_extra=describe_request_body(route),
        )
    return Gateway(app, state)


def describe_responses(route: Route) -> dict[int | str, dict[str, Any]]:
    success: dict[str, Any] = {"model": route.response_model} if route.response_model else {}
    if route.path == DOCUMENT_PATH:
        success = {"content": {native.NDJSON: {}}}  # in addition to plain text
    if route.handler is native.directions:
        success["links"] = DIRECTION_LINKS
    responses: dict[int | str, dict[str, Any]] = {200: success}
    return responses | {status: {"description": "an error; the body has a message"} for status in route.error_statuses}


def describe_request_body(route: Route) -> dict[str, Any] | None:
    if route.path == DOCUMENT_PATH:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
        return {"requestBody": {"required": True, "content": content}, **describe_query(native.DocumentRequest)}
    if route.request_model is None:
        return None
    schema = {"schema": route.request_model.model_json_schema()}
    for kind, path in MEDIA_PATHS.items():
        if route.path == path:
            file: dict[str, Any] = {"type": "string", "format": "binary"}
            form = {"type": "object", "required": [kind], "properties": {kind: file}}
            content = {JSON: schema, f"{kind}/*": {"schema": file}, "multipart/form-data": {"schema": form}}
            return {"requestBody": {"required": True, "content": content}, **describe_query(native.MediaOptions)}
    forms = {} if route.request_model is native.TranslateRequest else {FORM: schema}
    return {"requestBody": {"required": True, "content": {JSON: schema, **forms}}}


def describe_query(model: type[BaseModel]) -> dict[str, Any]:
    fields = model.model_json_schema()["properties"]
    return {"parameters": [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]}
