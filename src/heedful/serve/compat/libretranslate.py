"""LibreTranslate's API."""

from itertools import chain
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from heedful.serve.compat.common import TextFormat, as_list, check_text_format, list_languages, translate_texts
from heedful.serve.native import LanguageCode, Text
from heedful.serve.requests import client_address, endpoint, read_authorization, read_request
from heedful.serve.state import ServerState
from heedful.text.language_codes import language_name

MAX_ALTERNATIVES = 8


class LibreTranslateRequest(BaseModel):
    """The body of /translate."""

    q: Annotated[list[Text], Field(min_length=1)] | Text
    source: LanguageCode = "auto"
    target: LanguageCode
    format: TextFormat = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    api_key: str | None = None


class DetectRequest(BaseModel):
    """The body of /detect."""

    q: Text
    api_key: str | None = None


@endpoint
async def translate(request: Request, state: ServerState) -> Any:
    """Translate a text or a list of texts (LibreTranslate's API)."""
    body = await read_request(LibreTranslateRequest, request, state)
    check_text_format(body.format)
    route = state.select_route(body.source, body.target)
    num_best = min(body.alternatives, MAX_ALTERNATIVES) + 1
    translations = await translate_texts(request, state, route, body.api_key, as_list(body.q), num_best=num_best)
    columns: dict[str, list[Any]] = {"translatedText": [translation["text"] for translation in translations]}
    if body.alternatives:
        columns["alternatives"] = [translation["alternatives"] for translation in translations]
    if body.source == "auto":
        columns["detectedLanguage"] = [detection_result(route.source)] * len(translations)
    return columns if isinstance(body.q, list) else {field: values[0] for field, values in columns.items()}


@endpoint
async def detect(request: Request, state: ServerState) -> Any:
    """Return the source languages of all models with confidence 0 (LibreTranslate's API)."""
    body = await read_request(DetectRequest, request, state)
    state.require_client(client_address(request), body.api_key or read_authorization(request.headers))
    return [detection_result(code) for code in list_languages(state, "source")]


def detection_result(code: str) -> dict[str, Any]:
    """A source language as a detection; the server detects no languages, so the confidence is 0."""
    return {"confidence": 0.0, "language": code}


@endpoint
async def languages(_: Request, state: ServerState) -> Any:
    """Languages of all models, and the languages that each is translated to (LibreTranslate's API)."""
    codes = dict.fromkeys([*list_languages(state, "source"), *list_languages(state, "target")])
    return [
        {
            "code": code,
            "name": language_name(code),
            "targets": [route.target for route in state.routes if route.source == code],
        }
        for code in codes
    ]


@endpoint
async def frontend_settings(_: Request, state: ServerState) -> Any:
    """Settings for clients (LibreTranslate's API)."""
    first = next(chain(state.routes, *state.media_routes.values()))
    return {
        "apiKeys": bool(state.keys),
        "charLimit": state.settings.max_body_bytes,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": bool(state.keys),
        "language": {
            side: {"code": code, "name": language_name(code)}
            for side, code in (("source", first.source), ("target", first.target))
        },
        "suggestions": False,
        "supportedFilesFormat": [],
    }
