"""docs/ctranslate2.md: its code, which does not use heedful, translates with the same parameters as heedful."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful import samples
from heedful.text.normalize import normalize

PAGE = Path(__file__).parents[2] / "docs" / "ctranslate2.md"
EXPORT, NORMALIZE, TRANSLATE, COMPARE = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
IGNORED = {  # arguments of heedful that do not change the tokens
    "num_hypotheses",
    "return_scores",
    "return_attention",
}
page_code: dict[str, object] = {}
exec(compile(NORMALIZE, "docs/ctranslate2.md", "exec"), page_code)


class RecordingModel:
    """A CTranslate2 model that records the arguments of `translate_batch`."""

    def __init__(self, model):
        self.model, self.calls = model, []

    def translate_batch(self, rows, **options):
        self.calls.append({"rows": rows} | {name: value for name, value in options.items() if name not in IGNORED})
        return self.model.translate_batch(rows, **options)

    def __getattr__(self, name):
        return getattr(self.model, name)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The names that the code of the page defines, after an export."""
    folder, names = tmp_path_factory.mktemp("page"), {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for code in (EXPORT, NORMALIZE, TRANSLATE):
            exec(compile(code, "docs/ctranslate2.md", "exec"), names)
        names["reference"] = heedful.load("exported", threads=1)
    finally:
        os.chdir(before)
    return names


ODD_CHARACTERS = "\u00a0\u200b\u200c\u200d\u0301e\u00ad\ufeff\u2581\u3000\r\t \u0628\U0001f469\x07\u2028\ud800"


@given(st.text() | st.text(st.sampled_from(ODD_CHARACTERS)))
def test_the_page_normalizes_like_heedful(text):
    assert page_code["normalize"](text) == normalize(text)[0]


def test_the_code_without_heedful_does_not_import_it():
    assert "heedful" not in re.findall(r"^(?:import|from) (\w+)", NORMALIZE + TRANSLATE, re.M)


def test_the_page_returns_what_heedful_returns(page):
    sentences = samples.validation_lines("pt-en")[0][20:40]
    sentences += ["  Eu\u00a0gosto  de cafe\u0301.\u200b ", "palavra " * 70 + "fim."]
    translations = page["reference"](sentences, split_sentences=False, suppress_words=(), tokens=False)
    assert [page["translate"](sentence) for sentence in sentences] == [translation.text for translation in translations]


@pytest.mark.parametrize("prefix", ["", "I really", "word " * 80])
def test_the_page_passes_what_heedful_passes(page, prefix, monkeypatch):
    ours, theirs = RecordingModel(page["reference"].engine.model), RecordingModel(page["model"])
    monkeypatch.setattr(page["reference"].engine, "model", ours)
    monkeypatch.setitem(page, "model", theirs)
    for sentence in ("Eu gosto muito de café.", "um dois três " * 30):
        expected = page["reference"](sentence, prefix=prefix, split_sentences=False, suppress_words=(), tokens=False)
        assert page["translate"](sentence, prefix=prefix) == expected.text
    assert theirs.calls == ours.calls
    assert len({call["max_decoding_length"] for call in ours.calls}) == 2


def test_the_page_names_the_files_of_an_export(page):
    table = PAGE.read_text(encoding="utf-8").split("| file | content |")[1].split("\n\n")[0]
    files = {
        name
        for name in re.findall(r"`([\w./]+\.(?:bin|json|spm))`", table)
        if not name.startswith(("source_", "target_"))
    }
    assert len(files) == 7
    assert all((page["reference"].location / name).is_file() for name in files)
