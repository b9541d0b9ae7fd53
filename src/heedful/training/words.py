"""The texts of a run's report in three languages (words.json), with numbers for {0}, {1}.

Phrase("score", ("BLEU", "31.6", "29.8", "33.4")).english        # "BLEU 31.6 (29.8 to 33.4)"
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

WORDS_FILE = Path(__file__).with_name("words.json")


class Phrase(NamedTuple):
    """A text by its key, and the values to insert; numbers are written as in English."""

    key: str
    values: tuple[str, ...] = ()

    @property
    def english(self) -> str:
        return load_words()["en"][self.key].format(*self.values)


@cache
def load_words() -> dict[str, dict[str, str]]:
    """Language -> key -> text."""
    words: dict[str, dict[str, str]] = json.loads(WORDS_FILE.read_text(encoding="utf-8"))
    return words
