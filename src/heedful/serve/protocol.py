"""The protocol between the server and its worker process: JSON frames, each preceded by its length in four bytes.

    {"ready": {...}}                                                        worker, once: description of the model
    {"error": "message"}                                                    or why it cannot be opened
    {"heartbeat": true}                                                     worker, also while it translates
    {"batch": 7, "jobs": [{"texts": [...], "options": {...}, "media": [...]}]}    server; files in base64
    {"batch": 7, "results": [{"translations": [...]}, {"error": "...", "code": 413}]}    worker, one result per job

Only plain values are sent, so neither side can make the other run code.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from heedful.errors import ConfigError
from heedful.inputs.sound import wav_bytes

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 1 << 28
HEARTBEAT_SECONDS = 0.2
LINE_OVERHEAD_TOKENS = 8  # cost of a line in addition to its text


@dataclass(frozen=True, slots=True)
class TranslationJob:
    """The texts of a request, or the content of its files, and their options (fields of TranslationOptions)."""

    texts: Sequence[str]
    options: Mapping[str, Any]
    media: Sequence[bytes] = ()


BLACK_DOT = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg=="
)  # PNG
TEST_SAMPLES, TEST_RATE = 800, 8_000  # of a tenth of a second of silence
TEST_OPTIONS = {"beam": 1, "tokens": False}
TEST_JOBS = {  # short, to warm up and to test an engine, by the kind of its model's sources
    "text": TranslationJob(["a"], TEST_OPTIONS),
    "image": TranslationJob((), TEST_OPTIONS, [BLACK_DOT]),
    "audio": TranslationJob((), TEST_OPTIONS, [wav_bytes(np.zeros(TEST_SAMPLES), TEST_RATE)]),
}


def require_servable(kind: str, name: str) -> None:
    """Raise ConfigError for a kind of sources (`input.kind`) that the server does not support."""
    if kind == "graph":
        raise ConfigError(
            f"{name} is a model of graphs: heedful serve is for models that translate texts, transcribe recordings or "
            f"describe pictures; use heedful translate {name}, or heedful.load in Python"
        )
    if kind not in TEST_JOBS:
        raise ConfigError(
            f"{name} is a language model: heedful serve is for models that translate texts, transcribe recordings or "
            f"describe pictures; use heedful generate {name}"
        )


def encode_job(job: TranslationJob) -> dict[str, Any]:
    """A job as plain values."""
    media = [b64encode(content).decode() for content in job.media]
    return {"texts": list(job.texts), "options": dict(job.options), "media": media}


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
