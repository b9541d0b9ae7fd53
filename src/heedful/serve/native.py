"""heedful's own API.

POST /v1/translate     {"texts": [...], "source": "pt", "target": "en", "beam": 5, "alternatives": 3,
                        "alignment": "best", "tokens": true, "confidence": true}
POST /v1/document      plain text of many lines; translations are streamed line by line
POST /v1/caption       a picture file, a form with one, or {"image": "iVBORw0...", "target": "en", "beam": 5}
POST /v1/transcribe    a recording, a form with one, or {"audio": "UklGRg...", "target": "en", "beam": 5}
GET  /v1/directions    the languages that the server translates
"""

import binascii
import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from heedful.inputs.kinds import NOUNS
from heedful.serve.rejection import RequestRejected
from heedful.serve.requests import (
    client_address,
    disconnect_waiter,
    endpoint,
    parse_json,
    read_authorization,
    read_body,
    read_request,
    validate,
)
from heedful.serve.state import ServerState

Text = Annotated[str, Field(max_length=100_000)]
MAX_FORM_PARTS = 20
Beam = Annotated[int, Field(ge=1, le=16)]
LengthPenalty = Annotated[float, Field(ge=0, le=8)]
Tag = Annotated[str, Field(max_length=100)]
LanguageCode = Annotated[str, Field(max_length=35)]
ModelName = Annotated[str, Field(max_length=255)]
NDJSON = "application/x-ndjson"
CHUNK_BYTES = 4096  # of a streamed response
ROUTE_FIELDS = ("source", "target", "model")  # of requests: they select the model


class TranslateRequest(BaseModel):
    """The body of /v1/translate; defaults come from the model."""

    model_config = ConfigDict(extra="forbid", strict=True)
    texts: Annotated[list[Text], Field(min_length=1, max_length=10_000)] | Text
    source: Annotated[LanguageCode | None, Field(description="may be left out if only one language is possible")] = None
    target: Annotated[LanguageCode | None, Field(description="may be left out if only one language is possible")] = None
    model: Annotated[ModelName | None, Field(description="the name of a model, instead of languages")] = None
    beam: Beam | None = None
    length_penalty: LengthPenalty | None = None
    alternatives: Annotated[int, Field(ge=0, le=8, description="number of alternative translations of each text")] = 0
    alignment: Annotated[str, Field(pattern="^(best|naive|shifted)$")] | None = None
    tokens: Annotated[bool, Field(description="return the log-probability of every token")] = False
    confidence: Annotated[bool, Field(description="return how sure the model is, if it is calibrated")] = False
    prefix: Annotated[str, Field(max_length=200, description="forced beginning of every translation")] = ""
    tag: Annotated[Tag | None, Field(description="a tag of the model")] = None
    split_sentences: Annotated[
        bool | None, Field(description="translate the sentences of a line separately; null: as the model was trained")
    ] = None
    timeout: Annotated[float, Field(ge=0.1, le=300, description="seconds")] | None = None


class DocumentRequest(BaseModel):
    """The query of /v1/document."""

    model_config = ConfigDict(extra="forbid")
    source: LanguageCode | None = None
    target: LanguageCode | None = None
    model: ModelName | None = None
    beam: Beam | None = None
    length_penalty: LengthPenalty | None = None
    tag: Tag | None = None
    confidence: bool = False


class MediaOptions(BaseModel):
    """The options of /v1/caption and /v1/transcribe, in the query or the body; defaults come from the model."""

    model_config = ConfigDict(extra="forbid")
    target: Annotated[LanguageCode | None, Field(description="may be left out if only one language is possible")] = None
    model: Annotated[ModelName | None, Field(description="the name of a model, instead of a language")] = None
    beam: Beam | None = None
    length_penalty: LengthPenalty | None = None
    alternatives: Annotated[int, Field(ge=0, le=8, description="number of other outputs")] = 0
    tokens: Annotated[bool, Field(description="return the log-probability of every token")] = False
    prefix: Annotated[str, Field(max_length=200, description="forced beginning of the output")] = ""
    timeout: Annotated[float, Field(ge=0.1, le=300, description="seconds")] | None = None


class CaptionRequest(MediaOptions):
    """The body of /v1/caption, if it is JSON."""

    model_config = ConfigDict(strict=True)
    image: Annotated[str, Field(description="the file in base64 (PNG, JPEG, GIF, WebP or BMP), or a data: URL of it")]


class TranscriptionRequest(MediaOptions):
    """The body of /v1/transcribe, if it is JSON."""

    model_config = ConfigDict(strict=True)
    audio: Annotated[str, Field(description="the file in base64 (WAV, FLAC, OGG or MP3), or a data: URL of it")]


MEDIA_REQUESTS: dict[str, type[MediaOptions]] = {"image": CaptionRequest, "audio": TranscriptionRequest}


class TokenResponse(BaseModel):
    """A token of a translation."""

    text: str
    log_probability: float


class FlagResponse(BaseModel):
    """A warning about a text or its translation."""

    name: str
    side: str
    detail: str
    figures: Annotated[dict[str, float], Field(description="measured values, such as counts and thresholds")] = {}


class ConfidenceResponse(BaseModel):
    """How good a translation probably is: the confidence of its least certain sentence."""

    label: Annotated[str, Field(description="sure, check or unsure")]
    probability: Annotated[float, Field(description="that chrF is above 50")]
    expected: Annotated[float, Field(description="chrF")]
    lower_bound: Annotated[float, Field(description="that chrF reaches with a probability of 90 %")]


class TranslationResponse(BaseModel):
    """A text and its translation."""

    source: str
    text: str
    pivot: Annotated[str, Field(description="the text between the two models of a pivot")] = ""
    score: float
    log_probability: float
    tokens: list[TokenResponse] = []
    alternatives: list[str]
    alignment: Annotated[list[tuple[int, int]], Field(description="source word, target word")] | None = None
    flags: list[FlagResponse]
    confidence: Annotated[
        ConfidenceResponse | None,
        Field(description="null: not requested, not calibrated, not the default search, or a pivot"),
    ] = None


class TranslateResponse(BaseModel):
    """The response of /v1/translate: one translation per text, and the model (of a pivot: both, joined by +)."""

    translations: list[TranslationResponse]
    model: str
    version: str
    via: Annotated[LanguageCode | None, Field(description="the language between the two models of a pivot")] = None


class MediaResponse(BaseModel):
    """The caption of a picture or transcript of a recording, and the model (of a pivot: both, joined by +)."""

    text: str
    pivot: Annotated[str, Field(description="the output of the first of the two models of a pivot")] = ""
    score: float
    log_probability: float
    tokens: list[TokenResponse] = []
    alternatives: list[str]
    flags: list[FlagResponse]
    model: str
    version: str
    via: Annotated[LanguageCode | None, Field(description="the language between the two models of a pivot")] = None


class DirectionResponse(BaseModel):
    """A pair of languages that the server translates; the source of captions is `image`, of transcripts `audio`."""

    source: str
    target: str
    models: Annotated[list[str], Field(description="one model, or the two models of a pivot")]
    via: Annotated[str | None, Field(description="the language between the two models of a pivot")] = None
    inspects: Annotated[bool, Field(description="whether /inspect is available")] = False
    live: Annotated[bool, Field(description="whether /live is available")] = False


class DirectionsResponse(BaseModel):
    """The response of /v1/directions."""

    directions: list[DirectionResponse]
    captions: Annotated[list[DirectionResponse], Field(description="languages in which pictures are described")] = []
    transcripts: Annotated[list[DirectionResponse], Field(description="languages of transcribed recordings")] = []


@endpoint
async def translate(request: Request, state: ServerState) -> Any:
    """Translate texts; return translations with scores, alignment and flags."""
    body = await read_request(TranslateRequest, request, state)
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    options = body.model_dump(exclude={"texts", "alternatives", "timeout", *ROUTE_FIELDS})
    options["num_best"] = body.alternatives + 1
    client = state.require_client(client_address(request), read_authorization(request.headers))
    route = state.select_route(body.source, body.target, body.model)
    return await state.translate(client, route, texts, options, disconnect_waiter(request), body.timeout)


@endpoint
async def translate_document(request: Request, state: ServerState) -> Any:
    """Translate plain text line by line; stream text or, with Accept: application/x-ndjson, one JSON object per line.

    The first part is translated before the status is sent. A later failure truncates a plain-text transfer, which
    clients detect, and ends NDJSON with a line {"error": ...}.
    """
    query = validate(DocumentRequest, dict(request.query_params))
    client = state.require_client(client_address(request), read_authorization(request.headers))
    route = state.select_route(query.source, query.target, query.model)
    state.acquire_document_slot(client)
    try:
        settings = state.settings
        data = await read_body(request, settings.max_document_bytes, 6 * settings.body_timeout_seconds)
        text = decode_document(data, settings.max_document_lines)
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        options = {**query.model_dump(exclude=set(ROUTE_FIELDS)), "tokens": False}
        translations = state.translate_document(client, route, lines, options, disconnect_waiter(request))
        as_ndjson = NDJSON in request.headers.get("accept", "")
        first = await anext(translations)
        return DocumentStream(first, translations, as_ndjson, lambda: state.release_document_slot(client))
    except BaseException:
        state.release_document_slot(client)
        raise


@endpoint
async def caption(request: Request, state: ServerState) -> Any:
    """Describe a picture. The body is a picture file, with options in the query; a form; or JSON with base64."""
    return await describe_media(request, state, "image")


@endpoint
async def transcribe(request: Request, state: ServerState) -> Any:
    """Transcribe a recording. The body is a sound file, with options in the query; a form; or JSON with base64."""
    return await describe_media(request, state, "audio")


async def describe_media(request: Request, state: ServerState, kind: str) -> dict[str, Any]:
    """The output of a model for the file of a request."""
    client = state.require_client(client_address(request), read_authorization(request.headers))
    num_bytes = int(request.headers.get("content-length", state.settings.max_media_bytes))
    with state.hold_bytes(client, num_bytes):
        data = await read_body(request, num_bytes, 6 * state.settings.body_timeout_seconds)
        query = validate(MediaOptions, dict(request.query_params)).model_dump(exclude_unset=True)
        content_type = request.headers.get("content-type", "")
        if content_type.startswith("multipart/"):
            options, content = parse_form(data, content_type, query, kind)
        else:
            options, content = parse_file(data, query, kind)
        fields = options.model_dump(include={"beam", "length_penalty", "tokens", "prefix"})
        fields["num_best"] = options.alternatives + 1
        route = state.select_route(kind, options.target, options.model, kind)
        answer = await state.translate(
            client, route, (), fields, disconnect_waiter(request), options.timeout, media=[content]
        )
    (translation,) = answer["translations"]
    merged = translation | answer
    return {name: merged[name] for name in MediaResponse.model_fields if name in merged}


def parse_form(data: bytes, content_type: str, query: dict[str, Any], kind: str) -> tuple[MediaOptions, bytes]:
    """The options and the file of a multipart form, whose parts are named as the fields of the JSON."""
    boundary = re.search(r'boundary="?([^";,\s]+)', content_type)
    delimiter = f"--{boundary[1]}".encode() if boundary else b""
    if not delimiter or data.count(delimiter) > MAX_FORM_PARTS:
        raise RequestRejected(422, f"the form has no boundary, or more than {MAX_FORM_PARTS} parts")
    fields: dict[str, bytes] = {}
    for part in data.split(delimiter)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        if name := re.search(rb'\bname="?([^";\r\n]+)', head):
            fields[name[1].decode("utf-8", "replace")] = content.removesuffix(b"\r\n")
    file = fields.pop(kind, None)
    if file is None:
        raise RequestRejected(422, f"the form has no part `{kind}`: curl -F {kind}=@{NOUNS[kind].file}")
    texts = {name: value.decode("utf-8", "replace") for name, value in fields.items()}
    return validate(MediaOptions, query | texts), file


def parse_file(data: bytes, query: dict[str, Any], kind: str) -> tuple[MediaOptions, bytes]:
    """The options and the file of a request; its body is JSON if it begins with a brace, as no such file does."""
    if not data.lstrip().startswith(b"{"):
        return validate(MediaOptions, query), data
    body = validate(MEDIA_REQUESTS[kind], query | parse_json(data))
    try:
        return body, b64decode("".join(getattr(body, kind).rpartition("base64,")[2].split()), validate=True)
    except (binascii.Error, ValueError):  # ValueError: characters that are not ASCII
        raise RequestRejected(422, f"{kind}: not base64; encode the content of the file, not its name") from None


@endpoint
async def directions(_: Request, state: ServerState) -> Any:
    """Pairs of languages that the server translates, directly or through a third language."""
    return describe_directions(state)


def describe_directions(state: ServerState) -> dict[str, Any]:
    """The routes of the server as a `DirectionsResponse`."""
    settings = state.settings
    directions = [
        {
            **asdict(route),
            "inspects": route.via is None and route.models[0] in settings.inspect_dirs,
            "live": route.via is None and route.models[0] in settings.live_pages,
        }
        for route in state.routes
    ]
    media = {
        NOUNS[kind].texts: [{**asdict(route), "inspects": False, "live": False} for route in routes]
        for kind, routes in state.media_routes.items()
    }
    return {"directions": directions, **media}


def decode_document(data: bytes, max_lines: int) -> str:
    """Decode a document; raise RequestRejected if it is too long or not UTF-8."""
    if data.count(b"\n") > max_lines:
        raise RequestRejected(413, f"the document has more than {max_lines:,} lines: send it in several parts")
    try:
        return data.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise RequestRejected(422, f"the text is not UTF-8 at byte {error.start + 1:,}: send it as UTF-8") from None


class DocumentStream(Response):
    """Streams translations, one per line; `on_end` is called when the transfer ends or fails."""

    def __init__(
        self,
        first: dict[str, Any],
        others: AsyncIterator[dict[str, Any]],
        as_ndjson: bool,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(media_type=f"{NDJSON if as_ndjson else 'text/plain'}; charset=utf-8")
        del self.headers["content-length"]  # not known yet
        self.first, self.others, self.as_ndjson, self.on_end = first, others, as_ndjson, on_end

    def encode_line(self, translation: dict[str, Any]) -> bytes:
        line: str = json.dumps(translation, ensure_ascii=False) if self.as_ndjson else translation["text"]
        return line.encode() + b"\n"

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        data = self.encode_line(self.first)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for translation in self.others:
                data += self.encode_line(translation)
                if len(data) > CHUNK_BYTES:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    data = b""
        except RequestRejected as rejection:
            if not self.as_ndjson:
                return  # uvicorn then truncates the transfer, which clients detect
            data += json.dumps({"error": rejection.message}).encode() + b"\n"
        finally:
            self.on_end()
        await send({"type": "http.response.body", "body": data})
