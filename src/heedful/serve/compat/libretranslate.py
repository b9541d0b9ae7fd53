"""LibreTranslate's API."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from heedful.serve.compat.common import (
    LanguageCode,
    TextFormat,
    as_list,
    check_languages,
    check_text_format,
    translate_texts,
)
from heedful.serve.native import Text
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
    check_languages(state, body.source, body.target)
    num_best = min(body.alternatives, MAX_ALTERNATIVES) + 1
    translations = await translate_texts(request, state, body.api_key, as_list(body.q), num_best=num_best)
    columns: dict[str, list[Any]] = {"translatedText": [translation["text"] for translation in translations]}
    if body.alternatives:
        columns["alternatives"] = [translation["alternatives"] for translation in translations]
    if body.source == "auto":
        columns["detectedLanguage"] = [detection_result(state)] * len(translations)
    return columns if isinstance(body.q, list) else {field: values[0] for field, values in columns.items()}


@endpoint
async def detect(request: Request, state: ServerState) -> Any:
    """Return the model's source language with confidence 0 (LibreTranslate's API)."""
    body = await read_request(DetectRequest, request, state)
    state.require_client(client_address(request), body.api_key or read_authorization(request.headers))
    return [detection_result(state)]


def detection_result(state: ServerState) -> dict[str, Any]:
    """The model's source language as a detection; the server detects no languages, so the confidence is 0."""
    return {"confidence": 0.0, "language": state.supervisor.model_info.get("source")}


@endpoint
async def languages(_: Request, state: ServerState) -> Any:
    """Languages of the model (LibreTranslate's API)."""
    source, target = (state.supervisor.model_info.get(side) for side in ("source", "target"))
    return [
        {"code": source, "name": language_name(source), "targets": [target]},
        {"code": target, "name": language_name(target), "targets": []},
    ]


@endpoint
async def frontend_settings(_: Request, state: ServerState) -> Any:
    """Settings for clients (LibreTranslate's API)."""
    codes = {side: state.supervisor.model_info.get(side) for side in ("source", "target")}
    return {
        "apiKeys": bool(state.settings.keys),
        "charLimit": state.settings.max_body_bytes,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": bool(state.settings.keys),
        "language": {side: {"code": code, "name": language_name(code)} for side, code in codes.items()},
        "suggestions": False,
        "supportedFilesFormat": [],
    }
