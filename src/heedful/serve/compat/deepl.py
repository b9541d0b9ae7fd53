"""DeepL's API."""

from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import BaseModel, Field

from heedful.serve.compat.common import as_list, list_languages, translate_texts
from heedful.serve.native import LanguageCode, Text
from heedful.serve.rejection import RequestRejected
from heedful.serve.requests import client_address, endpoint, has_form_body, parse_body, read_authorization, read_request
from heedful.serve.state import ServerState
from heedful.text.language_codes import language_name

UNLIMITED_CHARACTERS = 1_000_000_000_000  # DeepL's value for accounts without a limit


class DeepLRequest(BaseModel):
    """The body of /v2/translate."""

    text: Annotated[list[Text], Field(min_length=1)] | Text
    target_lang: LanguageCode
    source_lang: LanguageCode | None = None
    formality: str | None = None
    glossary_id: str | None = None
    tag_handling: str | None = None
    split_sentences: Literal["0", "1", "nonewlines", 0, 1] = "1"


@endpoint
async def translate(request: Request, state: ServerState) -> Any:
    """Translate texts (DeepL's API)."""
    body = await read_request(DeepLRequest, request, state)
    for option, value in (("glossary_id", body.glossary_id), ("tag_handling", body.tag_handling)):
        if value:
            raise RequestRejected(400, f"{option} is not supported: leave it out")
    if body.formality in ("more", "less"):
        raise RequestRejected(400, "formality is not supported: leave it out, or use prefer_more or prefer_less")
    route = state.select_route(body.source_lang, body.target_lang)
    texts = as_list(body.text)
    if body.split_sentences not in ("1", 1):
        texts = [" ".join(text.splitlines()) for text in texts]  # "0" and "nonewlines": a line break ends no sentence
    split_sentences = False if body.split_sentences in ("0", 0) else None  # None: as the model was trained
    translations = await translate_texts(request, state, route, None, texts, split_sentences=split_sentences)
    return {
        "translations": [
            {
                "detected_source_language": route.source.upper(),
                "text": translation["text"],
                "billed_characters": len(translation["source"]),
            }
            for translation in translations
        ]
    }


@endpoint
async def languages(request: Request, state: ServerState) -> Any:
    """Source or target languages of all models (DeepL's API)."""
    state.require_client(client_address(request), read_authorization(request.headers))
    form = await parse_body(request, state) if has_form_body(request) else {}  # DeepL's client sends one with GET
    is_target = "target" in (request.query_params.get("type"), form.get("type"))
    return [
        {"language": code.upper(), "name": language_name(code), "supports_formality": False}
        for code in list_languages(state, "target" if is_target else "source")
    ]


@endpoint
async def usage(request: Request, state: ServerState) -> Any:
    """Number of characters translated for this key (DeepL's API)."""
    client = state.require_client(client_address(request), read_authorization(request.headers))
    num_characters = state.characters_by_account[state.usage_account(client)]
    return {"character_count": num_characters, "character_limit": UNLIMITED_CHARACTERS}
