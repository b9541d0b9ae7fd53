"""MP3 files, whose frames are counted: nothing else says how long such a file is.

libsndfile believes the Xing header, a frame without sound in front of the others. If there is none, it guesses the
length from the size of the first frame, and decodes no more than that.
"""

from heedful.inputs.media import MediaError

# By the version in the head of a frame (3: MPEG-1, 2: MPEG-2, 0: MPEG-2.5)
KILOBITS_PER_SECOND: dict[int, tuple[int, ...]] = {
    3: (0, *range(32, 64, 8), *range(64, 128, 16), *range(128, 256, 32), 256, 320),
    2: (0, *range(8, 64, 8), *range(64, 161, 16)),
    0: (0, *range(8, 64, 8), *range(64, 161, 16)),
}
SAMPLES_PER_SECOND = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
SAMPLES_PER_FRAME = {3: 1_152, 2: 576, 0: 576}
SIDE_BYTES = {3: (32, 17), 2: (17, 9), 0: (17, 9)}  # between the head and the Xing header: stereo, mono
LARGE_BIT_RATE = 8  # the number of one with which a frame has room for a Xing header
MAX_INTERRUPTIONS = 10_000  # between frames: tags, and places in noise that look like the beginning of a frame
MAX_UNCOUNTED = 2  # frames: the Xing header itself, and the last one, which some encoders forget


def count_frames(content: bytes) -> bytes:
    """An MP3 that says how many frames it has; MediaError if the last one is cut off."""
    first, end, count = _find_frames(content)
    if count > 1 and end > len(content):
        raise MediaError("incomplete: its last frame is cut off")
    if not count or _declared_frames(content, first) + MAX_UNCOUNTED >= count:
        return content
    head = bytearray(content[first : first + 4])
    head[1] |= 1  # no checksum follows
    head[2] = LARGE_BIT_RATE << 4 | head[2] & 0x0C
    header = bytes(head) + bytes(_side_bytes(head)) + b"Xing" + (1).to_bytes(4, "big") + count.to_bytes(4, "big")
    return content[:first] + header.ljust(_frame_bytes(head), b"\0") + content[first:]


def _find_frames(content: bytes) -> tuple[int, int, int]:
    """Where the first frame begins and the last one ends, and their number. Tags and noise may be between them."""
    position = first = end = count = interruptions = 0
    is_expected = True  # that a frame begins here; elsewhere, another one must follow it
    while position >= 0 and interruptions < MAX_INTERRUPTIONS:
        head = content[position : position + 10]
        size = _frame_bytes(head)
        if size and (is_expected or _frame_bytes(content[position + size : position + size + 4])):
            first = first if count else position
            position = end = position + size
            count, is_expected = count + 1, True
            continue
        interruptions += 1
        if head.startswith(b"ID3"):  # a tag, whose size has 7 bits per byte
            position += 10 + sum(byte << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=False))
        else:
            position = content.find(content[first : first + 2], position + 1) if count else -1
            is_expected = False
    return first, end, count


def _frame_bytes(head: bytes | bytearray) -> int:
    """The size of the frame with this head; 0 if it is none of layer III."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return 0
    version, bit_rate, sample_rate = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or bit_rate in (0, 15) or sample_rate == 3:
        return 0
    bits = 1_000 * KILOBITS_PER_SECOND[version][bit_rate] * SAMPLES_PER_FRAME[version]
    return bits // (8 * SAMPLES_PER_SECOND[version][sample_rate]) + (head[2] >> 1 & 1)


def _side_bytes(head: bytes | bytearray) -> int:
    version, is_mono = head[1] >> 3 & 3, head[3] >> 6 == 3
    return SIDE_BYTES[version][is_mono]


def _declared_frames(content: bytes, first: int) -> int:
    """The number of frames in the header of Xing or Fraunhofer; 0 if there is none."""
    if content[first + 36 : first + 40] == b"VBRI":
        return int.from_bytes(content[first + 50 : first + 54], "big")
    place = first + 4 + _side_bytes(content[first : first + 4])
    name, has_count = content[place : place + 4], content[place + 7 : place + 8]
    if name not in (b"Xing", b"Info") or not has_count or not has_count[0] & 1:
        return 0
    return int.from_bytes(content[place + 8 : place + 12], "big")
