"""What is asked over HTTP, read with suspicion; and refusals as every API words them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from heedful.serve.batcher import Refused
from heedful.serve.state import Leaving, Served

FORM = "application/x-www-form-urlencoded"
FIELDS = 1000  # of a form
Handler = Callable[[Request, Served], Awaitable[Any]]
Asked = TypeVar("Asked", bound=BaseModel)


async def body_of(request: Request, most: int, patience: float) -> bytes:
    """The body, as far and as long as it may go: a length need not be told, or true."""
    parts, seen = list[bytes](), 0
    try:
        async with asyncio.timeout(patience):
            async for part in request.stream():
                parts.append(part)
                seen += len(part)
                if seen > most:
                    raise Refused(413, f"the body is larger than {most:,} bytes: send less at once")
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {patience:.0f} seconds") from None
    except ClientDisconnect:
        raise Refused(499, "the client left") from None
    return b"".join(parts)


async def tree_of(request: Request, served: Served) -> dict[str, Any]:
    """What was sent: a JSON object, or a form, in which a field that is there once is one text.

    `curl -d` says that all it sends is a form; what begins with a brace is none.
    """
    data = await body_of(request, served.settings.body, served.settings.patience)
    if is_form(request) and not data.lstrip().startswith(b"{"):
        try:
            form = parse_qs(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS)
        except ValueError:
            raise Refused(422, f"the form has more than {FIELDS} fields") from None
        return {name: values[0] if len(values) == 1 else values for name, values in form.items()}
    try:
        tree = json.loads(data)
        if b"\\u" in data:
            json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refused(422, "a text holds half a character (a lone surrogate): send whole ones") from None
    except (ValueError, RecursionError):
        raise Refused(422, "the body is not JSON, nor a form") from None
    if not isinstance(tree, dict):
        raise Refused(422, "the body is not a JSON object")
    return tree


def is_form(request: Request) -> bool:
    """Whether the body says that it is a form."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def checked(kind: type[Asked], tree: dict[str, Any]) -> Asked:
    """What was asked, if it can be."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Refused(422, f"{'.'.join(map(str, first['loc']))[:100]}: {first['msg'][:200]}") from None


async def read(kind: type[Asked], request: Request, served: Served) -> Asked:
    """The same, from a body."""
    return checked(kind, await tree_of(request, served))


def bearer(headers: Mapping[str, str]) -> str | None:
    """The key of an Authorization header, whichever way it is introduced."""
    return headers.get("authorization", "").strip().rpartition(" ")[2] or None


def address(request: Request) -> str:
    """Where it comes from."""
    return request.client.host if request.client else "?"


def leaving(request: Request) -> Leaving:
    """What returns when the client has hung up; the body must have been read."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return left


# ------------------------------------------------------------------------------------------------------- refusals


def native(status: int, why: str) -> tuple[int, Any]:
    """Ours, and LibreTranslate's but for a wrong key."""
    return status, {"error": why}


def libre(status: int, why: str) -> tuple[int, Any]:
    """LibreTranslate's."""
    return 403 if status == 401 else status, {"error": why}


def deepl(status: int, why: str) -> tuple[int, Any]:
    """DeepL's."""
    return 403 if status == 401 else status, {"message": why}


def google(status: int, why: str) -> tuple[int, Any]:
    """Google's."""
    status = 403 if status == 401 else status
    return status, {"error": {"code": status, "message": why}}


SHAPES = {  # by the beginning of a path; all others are ours
    "/translate": libre,
    "/detect": libre,
    "/v2/": deepl,
    "/language/": google,
}


def said(path: str, refused: Refused) -> JSONResponse:
    """A refusal, as whoever asks at this path expects it."""
    shape = next((shape for begin, shape in SHAPES.items() if path.startswith(begin)), native)
    status, tree = shape(refused.status, refused.why)
    headers = {"Retry-After": str(refused.after)} if refused.after is not None else {}
    headers |= {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    headers |= {"Connection": "close"} if status in (408, 413) else {}  # what was not read is not waited for
    return JSONResponse(tree, status, headers)


def answered(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose refusals become responses."""

    async def wrapped(request: Request) -> Response:
        try:
            found = await handler(request, request.app.state.served)
        except Refused as refused:
            return said(request.url.path, refused)
        return found if isinstance(found, Response) else JSONResponse(found)

    wrapped.__doc__ = handler.__doc__
    wrapped.__name__ = getattr(handler, "__name__", "handler")
    return wrapped
