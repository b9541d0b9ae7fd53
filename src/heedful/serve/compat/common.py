"""Shared by the vendors' APIs: language codes and names, and checks for unsupported options."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from heedful.serve.rejection import RequestRejected
from heedful.serve.requests import client_address, disconnect_waiter, read_authorization
from heedful.serve.state import ServerState
from heedful.text.language_codes import base_language

LanguageCode = Annotated[str, Field(max_length=35)]
TextFormat = Annotated[str, Field(pattern="^(text|html)?$")]


def is_same_language(code: str, other: str) -> bool:
    """Whether two codes can mean the same language: true for EN-US and en, false for pt-BR and pt-PT."""
    code, other = (each.lower().replace("_", "-") for each in (code, other))
    return code == other or (base_language(code) == base_language(other) and ("-" not in code or "-" not in other))


def check_languages(state: ServerState, source: str | None, target: str | None) -> None:
    """Reject a language pair that the model does not translate."""
    model_source, model_target = (state.supervisor.model_info.get(side) for side in ("source", "target"))
    for requested, available in ((source, model_source), (target, model_target)):
        if requested not in (None, "", "auto") and not is_same_language(requested, str(available)):
            raise RequestRejected(400, f"this model translates from {model_source} to {model_target}, not {requested}")


def check_text_format(text_format: str) -> None:
    if text_format == "html":
        raise RequestRejected(400, "HTML markup is not supported: send plain text with format=text")


def as_list(texts: list[str] | str) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


async def translate_texts(
    request: Request, state: ServerState, key: str | None, texts: list[str], **options: Any
) -> list[dict[str, Any]]:
    """Translate texts with fields of `TranslationOptions`; `key` overrides the Authorization header."""
    client = state.require_client(client_address(request), key or read_authorization(request.headers))
    answer = await state.translate(client, texts, {"tokens": False, **options}, disconnect_waiter(request))
    return answer["translations"]  # type: ignore[no-any-return]
