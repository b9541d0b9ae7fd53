r"""A tokenizer that normalizes by itself, for programs that hand it text as it comes.

    sentencepiece.SentencePieceProcessor(model_proto=normalizing(model)).encode("a\u200bb  c")        # as of "ab c"

Heedful normalizes before it tokenizes (`text/normalize.py`), other programs do not; but a SentencePiece model can hold
a table of what to replace by what. Ours says what `normalize` says, but for what needs to look around: joiners, which
matter in some scripts only, and Korean syllables in parts, which are many.
"""

import sys
import unicodedata
from functools import cache

import sentencepiece

from heedful.exporters.protobuf import field
from heedful.text.normalize import CHANGES, normalize

LEFT = frozenset("\u200c\u200d")
SYLLABLES = range(0xAC00, 0xD7A4)
HALVES = range(0xD800, 0xE000)
NORMALIZER = 3  # its number in SentencePiece's model


def normalizing(model: bytes) -> bytes:
    """The SentencePiece model with the same pieces, and our table in it."""
    return model + field(NORMALIZER, spec())


@cache
def spec() -> bytes:
    """SentencePiece's description of the table; single spaces and none at the ends are a switch of its own."""
    sentencepiece.set_min_log_level(2)
    made = sentencepiece.SentencePieceNormalizer(
        norm_map=table(), add_dummy_prefix=True, escape_whitespaces=True, remove_extra_whitespaces=True
    )
    return bytes(made.serialized_normalizer_spec())


def table() -> list[tuple[str, str]]:
    """Every character that is not its own normal form, and every way to spell one with loose accents."""
    every = "".join(chr(number) for number in range(1, sys.maxunicode + 1) if number not in HALVES)
    odd = {found for change in CHANGES.values() for found in change.pattern.findall(every)} - LEFT
    found = {}
    for letter in every:
        apart = unicodedata.normalize("NFD", letter)
        if letter not in odd and (apart == letter or ord(letter) in SYLLABLES):
            continue
        for spelled in {
            letter,
            *(unicodedata.normalize("NFC", apart[:cut]) + apart[cut:] for cut in range(1, len(apart))),
        }:
            if (normal := alone(spelled)) != spelled:
                found[spelled] = normal
    return sorted(found.items())


def alone(text: str) -> str:
    """`normalize` of a text inside another, where spaces at its ends stay."""
    return normalize(f"|{text}|")[0][1:-1]  # no accent joins this sign
