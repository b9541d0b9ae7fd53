"""Our own API.

POST /v1/translate     {"texts": [...], "beam": 5, "alternatives": 3, "alignment": "best", "tokens": true}
POST /v1/document      a plain text of many lines; its translation comes back line by line, as it is made
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from heedful.serve.batcher import Refused
from heedful.serve.requests import address, answered, bearer, body_of, checked, leaving, read
from heedful.serve.state import Served

Text = Annotated[str, Field(max_length=100_000)]
Beam = Annotated[int, Field(ge=1, le=16)]
Penalty = Annotated[float, Field(ge=0, le=8)]
Tag = Annotated[str, Field(max_length=100)]
LINES = "application/x-ndjson"


class Asked(BaseModel):
    """What /v1/translate is asked; what is left out is as the model says."""

    model_config = ConfigDict(extra="forbid", strict=True)
    texts: Annotated[list[Text], Field(min_length=1, max_length=10_000)] | Text
    beam: Beam | None = None
    length_penalty: Penalty | None = None
    alternatives: Annotated[int, Field(ge=0, le=8, description="how many more translations of each")] = 0
    alignment: Annotated[str, Field(pattern="^(best|naive|shifted)$")] | None = None
    tokens: Annotated[bool, Field(description="whether log p of every token is wanted")] = False
    prefix: Annotated[str, Field(max_length=200, description="how the translation must begin")] = ""
    tag: Annotated[Tag | None, Field(description="a tag of the model")] = None
    timeout: Annotated[float, Field(ge=0.1, le=300, description="seconds")] | None = None


class AskedDocument(BaseModel):
    """The query of /v1/document."""

    model_config = ConfigDict(extra="forbid")
    beam: Beam | None = None
    length_penalty: Penalty | None = None
    tag: Tag | None = None


class Piece(BaseModel):
    """A token of a translation."""

    text: str
    log_probability: float


class Flag(BaseModel):
    """Something to look at twice."""

    name: str
    side: str
    detail: str


class One(BaseModel):
    """A text and its translation."""

    source: str
    text: str
    score: float
    log_probability: float
    tokens: list[Piece] = []
    alternatives: list[str]
    alignment: Annotated[list[tuple[int, int]], Field(description="source word, target word")] | None = None
    flags: list[Flag]


class Answered(BaseModel):
    """What /v1/translate answers: one translation for each text, and which model it was."""

    translations: list[One]
    model: str
    version: str


@answered
async def translate(request: Request, served: Served) -> Any:
    """Texts, with all that the model says of them."""
    asked = await read(Asked, request, served)
    texts = [asked.texts] if isinstance(asked.texts, str) else asked.texts
    options: dict[str, Any] = {"num_best": asked.alternatives + 1, "alignment": asked.alignment, "prefix": asked.prefix}
    options |= {"tokens": asked.tokens, "beam": asked.beam, "length_penalty": asked.length_penalty, "tag": asked.tag}
    client = served.client(address(request), bearer(request.headers))
    return await served.translate(client, texts, options, leaving(request), asked.timeout)


@answered
async def document(request: Request, served: Served) -> Any:
    """A plain text of many lines, translated line by line: as text, or (Accept: application/x-ndjson) with all of it.

    The first part is translated before the status is sent. What goes wrong later ends a text in the middle of its
    transfer, which clients notice, and lines of JSON with one that says {"error": ...}.
    """
    asked = checked(AskedDocument, dict(request.query_params))
    client = served.client(address(request), bearer(request.headers))
    served.open(client)
    try:
        settings = served.settings
        text = text_of(await body_of(request, settings.document, 6 * settings.patience), settings.lines)
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        found = served.document(client, lines, {**asked.model_dump(), "tokens": False}, leaving(request))
        whole = LINES in request.headers.get("accept", "")
        return Streamed(await anext(found), found, whole, lambda: served.close(client))
    except BaseException:
        served.close(client)
        raise


def text_of(data: bytes, lines: int) -> str:
    """A document, if it is one."""
    if data.count(b"\n") > lines:
        raise Refused(413, f"the document has more than {lines:,} lines: send it in several parts")
    try:
        return data.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise Refused(422, f"the text is not UTF-8 at byte {error.start + 1:,}: send it as UTF-8") from None


class Streamed(Response):
    """Translations, one a line, while they are made; `end` is called when it is over."""

    def __init__(
        self, first: dict[str, Any], others: AsyncIterator[dict[str, Any]], whole: bool, end: Callable[[], None]
    ) -> None:
        super().__init__(media_type=f"{LINES if whole else 'text/plain'}; charset=utf-8")
        del self.headers["content-length"]  # nobody knows it yet
        self.first, self.others, self.whole, self.end = first, others, whole, end

    def line(self, found: dict[str, Any]) -> bytes:
        """One of them."""
        return (json.dumps(found, ensure_ascii=False) if self.whole else found["text"]).encode() + b"\n"

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        """An ASGI application."""
        data = self.line(self.first)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for one in self.others:
                data += self.line(one)
                if len(data) > 4096:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    data = b""
        except Refused as refused:
            if not self.whole:
                return  # uvicorn ends a transfer that was not finished so that clients notice
            data += json.dumps({"error": refused.why}).encode() + b"\n"
        finally:
            self.end()
        await send({"type": "http.response.body", "body": data})
