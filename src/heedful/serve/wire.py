"""What the server and its engine's process say to each other: frames of JSON, each after its length in four bytes.

    {"ready": {...}}                                                        the engine, once: what it speaks
    {"refused": "why"}                                                      or that it cannot
    {"beat": 0}                                                             the engine, also while it computes
    {"job": 7, "asks": [{"texts": [...], "options": {...}}]}                the server
    {"job": 7, "answers": [{"translations": [...]}, {"error": "...", "code": 413}]}      the engine, one for each ask

Plain values only, so neither side can make the other run anything.
"""

import json
from typing import Any, BinaryIO

LENGTH = 4
LARGEST = 1 << 28  # bytes of a frame
BEAT = 0.2  # seconds between two signs of life
PER_LINE = 8  # tokens that a line costs by being one, however short


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
