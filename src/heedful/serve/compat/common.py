"""Shared by the vendors' APIs: lists of languages, checks for unsupported options, and translation."""

from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import Field

from heedful.serve.rejection import RequestRejected
from heedful.serve.requests import client_address, disconnect_waiter, read_authorization
from heedful.serve.routes import TranslationRoute
from heedful.serve.state import ServerState

TextFormat = Annotated[str, Field(pattern="^(text|html)?$")]


def check_text_format(text_format: str) -> None:
    if text_format == "html":
        raise RequestRejected(400, "HTML markup is not supported: send plain text with format=text")


def as_list(texts: list[str] | str) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def list_languages(state: ServerState, side: Literal["source", "target"]) -> list[str]:
    """The codes of all source or all target languages, each once."""
    return list(dict.fromkeys(getattr(route, side) for route in state.routes))


async def translate_texts(
    request: Request, state: ServerState, route: TranslationRoute, key: str | None, texts: list[str], **options: Any
) -> list[dict[str, Any]]:
    """Translate texts with fields of `TranslationOptions`; `key` overrides the Authorization header."""
    client = state.require_client(client_address(request), key or read_authorization(request.headers))
    answer = await state.translate(client, route, texts, {"tokens": False, **options}, disconnect_waiter(request))
    return answer["translations"]  # type: ignore[no-any-return]
