"""The APIs that users' programs already speak: LibreTranslate's, DeepL's and Google's.

They are asked and answer as their own servers do, so a client needs another address and nothing else. What would make
an answer another one and cannot be done here (markup, glossaries, formality) is refused; mere hints are ignored.
"""

from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from heedful.serve.batcher import Refused
from heedful.serve.native import Text
from heedful.serve.requests import address, answered, bearer, is_form, leaving, read, tree_of
from heedful.serve.state import Served

Code = Annotated[str, Field(max_length=35)]
Format = Annotated[str, Field(pattern="^(text|html)?$")]
UNLIMITED = 1_000_000_000_000  # as DeepL says it
NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian",
    "nb": "Norwegian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def short(code: str | None) -> str:
    """pt_BR -> pt"""
    return (code or "").lower().replace("_", "-").partition("-")[0]


def name(code: str | None) -> str:
    """A language in English."""
    return NAMES.get(short(code), code or "?")


def spoken(served: Served, source: str | None, target: str | None) -> None:
    """Refuse a pair of languages that the model does not speak."""
    about = served.engine.about
    for asked, known in ((source, about.get("source")), (target, about.get("target"))):
        if asked not in (None, "", "auto") and not meant(asked, str(known)):
            raise Refused(
                400, f"this model translates from {about.get('source')} to {about.get('target')}, not {asked}"
            )


def meant(asked: str, known: str) -> bool:
    """Whether two codes are one language: EN-US and en are, pt-BR and pt-PT are not."""
    one, other = (code.lower().replace("_", "-") for code in (asked, known))
    return one == other or (short(one) == short(other) and ("-" not in one or "-" not in other))


def plain(kind: str) -> None:
    """Refuse markup."""
    if kind == "html":
        raise Refused(400, "markup is not understood here: send plain text, with format=text")


def listed(texts: list[str] | str) -> list[str]:
    """A text, or many."""
    return [texts] if isinstance(texts, str) else texts


async def translated(
    request: Request, served: Served, key: str | None, texts: list[str], best: int = 1
) -> list[dict[str, Any]]:
    """What the model says."""
    client = served.client(address(request), key or bearer(request.headers))
    found = await served.translate(client, texts, {"num_best": best, "tokens": False}, leaving(request))
    return found["translations"]  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------- LibreTranslate


class Libre(BaseModel):
    """What LibreTranslate's /translate is asked."""

    q: Annotated[list[Text], Field(min_length=1)] | Text
    source: Code = "auto"
    target: Code
    format: Format = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    api_key: str | None = None


class Detect(BaseModel):
    """What LibreTranslate's /detect is asked."""

    q: Text
    api_key: str | None = None


@answered
async def libre(request: Request, served: Served) -> Any:
    """LibreTranslate's /translate."""
    asked = await read(Libre, request, served)
    plain(asked.format)
    spoken(served, asked.source, asked.target)
    found = await translated(request, served, asked.api_key, listed(asked.q), min(asked.alternatives, 8) + 1)
    many = isinstance(asked.q, list)
    told = {"translatedText": [one["text"] for one in found]}
    if asked.alternatives:
        told["alternatives"] = [one["alternatives"] for one in found]
    if asked.source == "auto":
        told["detectedLanguage"] = [guess(served)] * len(found)
    return told if many else {field: values[0] for field, values in told.items()}


@answered
async def detect(request: Request, served: Served) -> Any:
    """LibreTranslate's /detect."""
    asked = await read(Detect, request, served)
    served.client(address(request), asked.api_key or bearer(request.headers))
    return [guess(served)]


def guess(served: Served) -> dict[str, Any]:
    """The one language that this model reads, with the confidence of who has not looked."""
    return {"confidence": 0.0, "language": served.engine.about.get("source")}


@answered
async def libre_languages(_: Request, served: Served) -> Any:
    """LibreTranslate's /languages."""
    source, target = served.engine.about.get("source"), served.engine.about.get("target")
    return [
        {"code": source, "name": name(source), "targets": [target]},
        {"code": target, "name": name(target), "targets": []},
    ]


@answered
async def libre_settings(_: Request, served: Served) -> Any:
    """LibreTranslate's /frontend/settings."""
    source, target = ({"code": code, "name": name(code)} for code in map(served.engine.about.get, ("source", "target")))
    return {
        "apiKeys": bool(served.settings.keys),
        "charLimit": served.settings.body,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": bool(served.settings.keys),
        "language": {"source": source, "target": target},
        "suggestions": False,
        "supportedFilesFormat": [],
    }


# --------------------------------------------------------------------------------------------------------- DeepL


class DeepL(BaseModel):
    """What DeepL's /v2/translate is asked."""

    text: Annotated[list[Text], Field(min_length=1)] | Text
    target_lang: Code
    source_lang: Code | None = None
    formality: str | None = None
    glossary_id: str | None = None
    tag_handling: str | None = None


@answered
async def deepl(request: Request, served: Served) -> Any:
    """DeepL's /v2/translate."""
    asked = await read(DeepL, request, served)
    for field, value in (("glossary_id", asked.glossary_id), ("tag_handling", asked.tag_handling)):
        if value:
            raise Refused(400, f"this server has no {field}: leave it out")
    if asked.formality in ("more", "less"):
        raise Refused(400, "this model knows no formality: leave it out, or say prefer_more or prefer_less")
    spoken(served, asked.source_lang, asked.target_lang)
    found = await translated(request, served, None, listed(asked.text))
    source = str(served.engine.about.get("source")).upper()
    return {
        "translations": [
            {"detected_source_language": source, "text": one["text"], "billed_characters": len(one["source"])}
            for one in found
        ]
    }


@answered
async def deepl_languages(request: Request, served: Served) -> Any:
    """DeepL's /v2/languages; its own client asks by a form, also in a GET."""
    served.client(address(request), bearer(request.headers))
    form = await tree_of(request, served) if is_form(request) else {}
    side = "target" if "target" in (request.query_params.get("type"), form.get("type")) else "source"
    code = str(served.engine.about.get(side))
    return [{"language": code.upper(), "name": name(code), "supports_formality": False}]


@answered
async def deepl_usage(request: Request, served: Served) -> Any:
    """DeepL's /v2/usage."""
    client = served.client(address(request), bearer(request.headers))
    return {"character_count": served.characters[served.account(client)], "character_limit": UNLIMITED}


# -------------------------------------------------------------------------------------------------------- Google


class Google(BaseModel):
    """What Google's /language/translate/v2 is asked."""

    q: Annotated[list[Text], Field(min_length=1)] | Text
    target: Code | None = None
    source: Code | None = None
    format: Format = "text"


@answered
async def google(request: Request, served: Served) -> Any:
    """Google's /language/translate/v2; unlike there, texts are plain unless one says otherwise."""
    asked = await read(Google, request, served)
    plain(asked.format)
    spoken(served, asked.source, asked.target)
    found = await translated(request, served, request.query_params.get("key"), listed(asked.q))
    told = {} if asked.source else {"detectedSourceLanguage": served.engine.about.get("source")}
    return {"data": {"translations": [{"translatedText": one["text"], **told} for one in found]}}
