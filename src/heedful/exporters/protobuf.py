r"""Protocol buffers, just enough to write one: SentencePiece's models and ONNX files are such messages.

    field(1, 8) + field(2, "heedful")        # b"\x08\x08\x12\x07heedful"

A message is its fields one after the other, and a message in a message is a field of bytes. Two messages one after the
other are one message, in which what the second says counts.
"""


def varint(number: int) -> bytes:
    """Seven bits to a byte, the lowest first; the eighth says that more follow."""
    assert number >= 0
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: int | str | bytes) -> bytes:
    """One field: a whole number that is not negative, text, bytes, or the bytes of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(number: int, values: list[int] | list[str] | list[bytes]) -> bytes:
    """The same field several times: a list."""
    return b"".join(field(number, value) for value in values)
