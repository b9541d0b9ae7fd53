"""Parsing of HTTP requests (body limits, validation, keys), and error responses."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from heedful.serve.compat.errors import find_error_format
from heedful.serve.rejection import RequestRejected, body_too_large_message
from heedful.serve.state import ServerState, WaitForDisconnect

FORM = "application/x-www-form-urlencoded"
MAX_FORM_FIELDS = 1000
REJECTED_BY = "heedful.rejected_by"  # key of the ASGI scope: the model that rejected the request
Handler = Callable[[Request, ServerState], Awaitable[Any]]
Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request, max_bytes: int, timeout_seconds: float) -> bytes:
    """Read the body with limits of size and time; Content-Length is not trusted."""
    chunks, num_bytes = list[bytes](), 0
    try:
        async with asyncio.timeout(timeout_seconds):
            async for chunk in request.stream():
                chunks.append(chunk)
                num_bytes += len(chunk)
                if num_bytes > max_bytes:
                    raise RequestRejected(413, body_too_large_message(max_bytes))
    except TimeoutError:
        raise RequestRejected(408, f"the body did not arrive within {timeout_seconds:.0f} seconds") from None
    except ClientDisconnect:
        raise RequestRejected(499, "the client disconnected") from None
    return b"".join(chunks)


async def parse_body(request: Request, state: ServerState) -> dict[str, Any]:
    """Read the body as a JSON object or a form; a form field that occurs once becomes a string.

    `curl -d` sends every body as a form, so a body that starts with a brace is parsed as JSON.
    """
    data = await read_body(request, state.settings.max_body_bytes, state.settings.body_timeout_seconds)
    if has_form_body(request) and not data.lstrip().startswith(b"{"):
        try:
            form = parse_qs(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
        except ValueError:
            raise RequestRejected(422, f"the form has more than {MAX_FORM_FIELDS} fields") from None
        return {name: values[0] if len(values) == 1 else values for name, values in form.items()}
    return parse_json(data)


def parse_json(data: bytes) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        fields = json.loads(data)
        if b"\\u" in data:
            json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestRejected(422, "a text contains a lone surrogate (half a character)") from None
    except (ValueError, RecursionError):
        raise RequestRejected(422, "the body is neither JSON nor a form") from None
    if not isinstance(fields, dict):
        raise RequestRejected(422, "the body is not a JSON object")
    return fields


def has_form_body(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def validate(model: type[Body], fields: dict[str, Any]) -> Body:
    """Validate fields with a pydantic model; the first error becomes a 422."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RequestRejected(422, f"{'.'.join(map(str, first['loc']))[:100]}: {first['msg'][:200]}") from None


async def read_request(model: type[Body], request: Request, state: ServerState) -> Body:
    return validate(model, await parse_body(request, state))


def read_authorization(headers: Mapping[str, str]) -> str | None:
    """Return the key in the Authorization header, with any scheme (Bearer, DeepL-Auth-Key) or none."""
    return headers.get("authorization", "").strip().rpartition(" ")[2] or None


def client_address(request: Request) -> str:
    return request.client.host if request.client else "?"


def disconnect_waiter(request: Request) -> WaitForDisconnect:
    """Return a coroutine function that waits until the client disconnects; call it after the body was read."""

    async def wait_for_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return wait_for_disconnect


def error_response(path: str, rejection: RequestRejected) -> JSONResponse:
    """Convert a rejection to a response, in the format of the API that the path belongs to."""
    status, body = find_error_format(path)(rejection.status, rejection.message)
    headers = {"Retry-After": str(rejection.retry_after)} if rejection.retry_after is not None else {}
    headers |= {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    headers |= {"Connection": "close"} if status in (408, 413) else {}  # the rest of the body is not read
    return JSONResponse(body, status, headers)


def endpoint(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Decorate a handler: pass the server's state, encode its result as JSON, turn rejections into error responses."""

    async def wrapped(request: Request) -> Response:
        try:
            result = await handler(request, request.app.state.server_state)
        except RequestRejected as rejection:
            request.scope[REJECTED_BY] = rejection.model
            return error_response(request.url.path, rejection)
        return result if isinstance(result, Response) else JSONResponse(result)

    wrapped.__doc__ = handler.__doc__
    wrapped.__name__ = getattr(handler, "__name__", "handler")
    return wrapped
