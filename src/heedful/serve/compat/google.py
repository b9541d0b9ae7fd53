"""Google's Translation API, version 2."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from heedful.serve.compat.common import TextFormat, as_list, check_text_format, list_languages, translate_texts
from heedful.serve.native import LanguageCode, Text
from heedful.serve.requests import endpoint, read_request
from heedful.serve.state import ServerState
from heedful.text.language_codes import language_name


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
    route = state.select_route(body.source, body.target)
    translations = await translate_texts(request, state, route, request.query_params.get("key"), as_list(body.q))
    detected = {} if body.source else {"detectedSourceLanguage": route.source}
    return {
        "data": {"translations": [{"translatedText": translation["text"], **detected} for translation in translations]}
    }


@endpoint
async def languages(_: Request, state: ServerState) -> Any:
    """Languages of all models, with English names (Google's API)."""
    codes = dict.fromkeys([*list_languages(state, "source"), *list_languages(state, "target")])
    return {"data": {"languages": [{"language": code, "name": language_name(code)} for code in codes]}}
