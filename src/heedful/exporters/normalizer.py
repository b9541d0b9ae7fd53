r"""A SentencePiece model that also normalizes text, for programs that do not normalize before tokenizing.

    model = add_normalizer(model)
    sentencepiece.SentencePieceProcessor(model_proto=model).encode("a\u200bb  c")        # as for "ab c"

Heedful normalizes before it tokenizes (`text/normalize.py`), other programs do not; but a SentencePiece model can hold
a table of replacements. This table does what `normalize` does, except where the context decides: joiners, which matter
in some scripts only, and Korean syllables written in parts, which are too many.
"""

import sys
import unicodedata
from functools import cache

import sentencepiece

from heedful.text.normalize import CHANGES, normalize

JOINERS = frozenset("\u200c\u200d")
KOREAN_SYLLABLES = range(0xAC00, 0xD7A4)
SURROGATES = range(0xD800, 0xE000)


def add_normalizer(model: bytes) -> bytes:
    """The SentencePiece model with the same pieces and heedful's normalization."""
    from sentencepiece import sentencepiece_model_pb2  # needs protobuf, which comes with onnx

    spec = sentencepiece_model_pb2.NormalizerSpec.FromString(normalizer_spec())
    # Concatenated messages are one message, in which later fields win.
    return model + bytes(sentencepiece_model_pb2.ModelProto(normalizer_spec=spec).SerializeToString())


@cache
def normalizer_spec() -> bytes:
    """SentencePiece's compiled replacement table; merging and stripping spaces is a flag of its own."""
    sentencepiece.set_min_log_level(2)
    normalizer = sentencepiece.SentencePieceNormalizer(
        norm_map=replacements(), add_dummy_prefix=True, escape_whitespaces=True, remove_extra_whitespaces=True
    )
    return bytes(normalizer.serialized_normalizer_spec())


def replacements() -> list[tuple[str, str]]:
    """(text, normal form) of every character that `normalize` changes, also when written with combining marks."""
    characters = "".join(chr(number) for number in range(1, sys.maxunicode + 1) if number not in SURROGATES)
    changed = {text for change in CHANGES.values() for text in change.pattern.findall(characters)} - JOINERS
    table = {}
    for character in characters:
        decomposed = unicodedata.normalize("NFD", character)
        if character not in changed and (decomposed == character or ord(character) in KOREAN_SYLLABLES):
            continue
        for spelling in {
            character,
            *(unicodedata.normalize("NFC", decomposed[:cut]) + decomposed[cut:] for cut in range(1, len(decomposed))),
        }:
            if (normal := normalize_inside(spelling)) != spelling:
                table[spelling] = normal
    return sorted(table.items())


def normalize_inside(text: str) -> str:
    """`normalize` a text as if it were inside another, so that spaces at its ends stay."""
    return normalize(f"|{text}|")[0][1:-1]  # no combining mark joins this character
