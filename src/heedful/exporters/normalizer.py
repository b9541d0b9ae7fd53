r"""Add heedful's normalization to a SentencePiece model, for programs that do not normalize.

    model = add_normalizer(model)
    sentencepiece.SentencePieceProcessor(model_proto=model).encode("a\u200bb  c")        # as for "ab c"

Heedful normalizes text before tokenizing (`text/normalize.py`); other programs do not, but a SentencePiece model can
contain a table of replacements. The table does the same as `normalize`, with two exceptions: joiners, which depend on
the context, and decomposed Korean syllables, which are too many.
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
    from sentencepiece import sentencepiece_model_pb2  # needs protobuf, which onnx installs

    spec = sentencepiece_model_pb2.NormalizerSpec.FromString(normalizer_spec())
    # Concatenated protobuf messages are one message; later fields win.
    return model + bytes(sentencepiece_model_pb2.ModelProto(normalizer_spec=spec).SerializeToString())


@cache
def normalizer_spec() -> bytes:
    """SentencePiece's compiled replacement table; a flag merges and strips spaces."""
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
    """`normalize` a text but keep the spaces at its ends."""
    return normalize(f"|{text}|")[0][1:-1]  # combining marks do not combine with |
