"""What the server and its engine's process say to each other: frames of JSON, each after its length in four bytes.

    {"ready": {...}}                                                        the engine, once: what it speaks
    {"refused": "why"}                                                      or that it cannot
    {"beat": 0}                                                             the engine, also while it computes
    {"job": 7, "asks": [{"texts": [...], "options": {...}}]}                the server
    {"job": 7, "answers": [{"translations": [...]}, {"error": "...", "code": 413}]}      the engine, one for each ask

Plain values only, so neither side can make the other run anything.
"""

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

LENGTH = 4
LARGEST = 1 << 28  # bytes of a frame
BEAT = 0.2  # seconds between two signs of life
PER_LINE = 8  # tokens that a line costs by being one, however short


def width(options: Mapping[str, Any], usual: int) -> float:
    """How much more a token costs than at the usual beam; a narrow one is no cheaper."""
    wide: int = max(usual, options.get("beam") or usual, options.get("num_best", 1))
    return wide / usual


def too_much(tokens: int, wide: float, most: int) -> str:
    """Why a request is refused that costs more than `most` tokens at the usual beam."""
    beam = "" if wide == 1 else f" with a beam or alternatives {wide:.3g} times the usual"
    return f"{tokens:,} tokens in one request{beam}; send at most {int(most / wide):,}, in several requests"


def framed(message: dict[str, Any]) -> bytes:
    """A message as bytes."""
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return len(data).to_bytes(LENGTH, "big") + data


def received(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message; None where the other side is gone."""
    head = stream.read(LENGTH)
    if len(head) < LENGTH:
        return None
    size = int.from_bytes(head, "big")
    data = stream.read(size) if size <= LARGEST else b""
    return json.loads(data) if len(data) == size else None
