"""A line of any length takes time proportional to its length: everything but the model's own work is measured."""

import time
from pathlib import Path

import pytest

import heedful
from heedful.bundle import open_bundle
from heedful.engines.base import EngineResult
from heedful.translation.translator import TranslationOptions, Translator
from heedful.types import Hypothesis

SAMPLE = Path(heedful.__file__).parent / "samples" / "pt-en" / "model"
UNITS = {
    "sentences": "O cachorro correu pela casa de 12 pessoas. ",
    "no sentence ends": "o cachorro correu pela casa ",
    "clauses": "o cachorro, a casa, ",
    "one word": "ab",
    "markup": "<b>a {x} %s</b> &amp; [y](z) ",
    "invisible": "a\u200b",
}


class OneTokenEngine:
    """Translates every source to the token in its middle, so that a run costs only the handling of text."""

    def translate(self, sources, _search):
        tokens = [source.row[len(source.row) // 2] for source in sources]
        return [(EngineResult(Hypothesis((token,), -1.0, -1.0, (-0.5, -0.5), True)),) for token in tokens]


@pytest.fixture(scope="module")
def translator():
    return Translator(open_bundle(SAMPLE), OneTokenEngine())


def cpu_seconds(translator: Translator, line: str) -> float:
    begin = time.process_time()
    (translation,) = translator.stream([[line]], TranslationOptions())
    assert translation.source == line
    return time.process_time() - begin


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_time_is_linear_in_the_length_of_a_line(translator, unit):
    """Eight times the length takes less than 20 times as long; quadratic code takes 64 times as long."""
    size = 8_000
    short = min(cpu_seconds(translator, unit * (size // len(unit))) for _ in range(3))
    assert cpu_seconds(translator, unit * (8 * size // len(unit))) < 20 * short + 0.2


def test_progress_counts_every_segment(translator):
    calls = []
    list(translator.stream([[UNITS["sentences"] * 900]], TranslationOptions(), lambda *counts: calls.append(counts)))
    assert len(calls) > 3
    assert calls == sorted(calls)
    assert calls[-1] == (900, 900)
