"""The protocol between the server and its worker process: JSON frames, each preceded by its length in four bytes.

    {"ready": {...}}                                                        worker, once: description of the model
    {"error": "message"}                                                    or why it cannot be opened
    {"heartbeat": true}                                                     worker, also while it translates
    {"batch": 7, "jobs": [{"texts": [...], "options": {...}, "pictures": [...]}]}    server; pictures in base64
    {"batch": 7, "results": [{"translations": [...]}, {"error": "...", "code": 413}]}    worker, one result per job

Only plain values are sent, so neither side can make the other run code.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from heedful.errors import ConfigError

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 1 << 28
HEARTBEAT_SECONDS = 0.2
LINE_OVERHEAD_TOKENS = 8  # cost of a line in addition to its text


@dataclass(frozen=True, slots=True)
class TranslationJob:
    """The texts or pictures (content of files) of a request, and their options (fields of TranslationOptions)."""

    texts: Sequence[str]
    options: Mapping[str, Any]
    pictures: Sequence[bytes] = ()


BLACK_DOT = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg=="
)  # PNG
TEST_OPTIONS = {"beam": 1, "tokens": False}
TEST_JOBS = {  # short, to warm up and to test an engine, by the kind of its model's sources
    "text": TranslationJob(["a"], TEST_OPTIONS),
    "image": TranslationJob((), TEST_OPTIONS, [BLACK_DOT]),
}


def require_servable(kind: str, name: str) -> None:
    """Raise ConfigError for a kind of sources (`input.kind`) that the server does not support."""
    if kind not in TEST_JOBS:
        raise ConfigError(
            f"{name} is a language model: heedful serve is for models that translate texts or describe pictures; use "
            f"heedful generate {name}"
        )


def encode_job(job: TranslationJob) -> dict[str, Any]:
    """A job as plain values."""
    pictures = [b64encode(picture).decode() for picture in job.pictures]
    return {"texts": list(job.texts), "options": dict(job.options), "pictures": pictures}


def beam_cost_factor(options: Mapping[str, Any], default_beam: int) -> float:
    """Return the cost of a token relative to the default beam, at least 1."""
    beam: int = max(default_beam, options.get("beam") or default_beam, options.get("num_best", 1))
    return beam / default_beam


def too_many_tokens_message(num_tokens: int, cost_factor: float, max_tokens: int) -> str:
    """Return the error message for a request that costs more than `max_tokens` at the default beam."""
    beam = "" if cost_factor == 1 else f" with a beam or alternatives {cost_factor:.3g} times the default"
    return (
        f"{num_tokens:,} tokens in one request{beam}; send at most {int(max_tokens / cost_factor):,}, "
        "in several requests"
    )


def encode_frame(message: dict[str, Any]) -> bytes:
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """Return the next message, or None if the other side closed the stream."""
    prefix = stream.read(LENGTH_BYTES)
    if len(prefix) < LENGTH_BYTES:
        return None
    num_bytes = int.from_bytes(prefix, "big")
    data = stream.read(num_bytes) if num_bytes <= MAX_FRAME_BYTES else b""
    return json.loads(data) if len(data) == num_bytes else None
