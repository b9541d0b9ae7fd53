"""Google's Translation API, version 2."""

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
from heedful.serve.requests import endpoint, read_request
from heedful.serve.state import ServerState


class GoogleRequest(BaseModel):
    """The body of /language/translate/v2."""

    q: Annotated[list[Text], Field(min_length=1)] | Text
    target: LanguageCode | None = None
    source: LanguageCode | None = None
    format: TextFormat = "text"


@endpoint
async def translate(request: Request, state: ServerState) -> Any:
    """Translate texts (Google's API); unlike Google's, the default format is plain text."""
    body = await read_request(GoogleRequest, request, state)
    check_text_format(body.format)
    check_languages(state, body.source, body.target)
    translations = await translate_texts(request, state, request.query_params.get("key"), as_list(body.q))
    detected = {} if body.source else {"detectedSourceLanguage": state.supervisor.model_info.get("source")}
    return {
        "data": {"translations": [{"translatedText": translation["text"], **detected} for translation in translations]}
    }
