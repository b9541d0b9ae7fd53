"""No translation contains a word that the model may not use, for every engine; other translations do not change."""

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import heedful
from heedful import samples
from heedful.bundle import GenerationSettings, open_bundle, write_bundle
from heedful.bundle.verify import read_weights
from heedful.cli.app import app
from heedful.engines.base import EngineResult, SamplingOptions
from heedful.errors import ConfigError, HeedfulError
from heedful.text.tokenizer import train
from heedful.translation.suppression import MASK, MAX_RETRIES, WordSuppressor, compile_words, read_words
from heedful.translation.translator import TranslationOptions
from heedful.types import Hypothesis

SENTENCES = gzip.decompress((samples.sample_folder("pt-en") / "test.pt.gz").read_bytes()).decode().splitlines()[:24]
WORDS = ("the", "he is", "tom", "a")  # common ones
PATTERN = compile_words(WORDS)
# News that the first Portuguese sample model answered with a listed word (benchmarks/suppressed_words.py).
OFFENDERS = (
    "A especialista que tocou o carrilhão em julho descreve-o de outra maneira: "
    '"Um tesouro cultural" e "um instrumento histórico insubstituível".',
    "Somente duas vezes na história da Ryder um time voltou com um déficit de quatro pontos e participou de partidas "
    "individuais, apesar de que, como titular, o lado de Furyk só precisa de um empate para manter o troféu.",
)


def flag_names(translation):
    return {flag.name for flag in translation.flags}


@pytest.fixture(scope="module", params=["torch", "ctranslate2", "onnx", "hugging_face"])
def translator(request, tmp_path_factory):
    """A model directory with the words in its settings, or its export."""
    folder = tmp_path_factory.mktemp("models")
    model = write_with_words(folder / "model", WORDS)
    if request.param == "torch":
        return heedful.load(model, threads=1)
    heedful.export(model, folder / request.param, to=request.param, probes=SENTENCES[:10])
    return heedful.load(folder / request.param, threads=1)


def write_with_words(folder, words):
    bundle = open_bundle(samples.model("pt-en"))
    write_bundle(
        folder,
        model=bundle.model,
        weights=read_weights(bundle),
        tokenizers=bundle.tokenizers,
        languages=("pt", "en"),
        card="test",
        generation=bundle.generation.model_copy(update={"suppress_words": words}),
        statistics=bundle.statistics,
    )
    return folder


# --------------------------------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("A bad day, a Bad\tWord, BAD!", ["bad", "Bad\tWord", "BAD"]),
        ("badly, abad, bad_, bads", []),
        ("s&m (s&m) S&M", ["s&m", "s&m", "S&M"]),
        ("a.b axb", ["a.b"]),
        ("xx🖕xx 🖕", ["🖕", "🖕"][1:]),
        ("été", ["été"]),
    ],
)
def test_words_match_as_a_whole_in_any_case(text, matches):
    pattern = compile_words(("bad", "bad word", "s&m", "a.b", "🖕", " ", "été"))
    assert [match.group() for match in pattern.finditer(text)] == matches


def test_a_pattern_finds_what_single_patterns_find():
    words = read_words(samples.suppressed_words_file())
    pattern = compile_words(words)
    assert all(pattern.fullmatch(word) for word in words)
    assert pattern.search("They saw the assassin pass Scunthorpe and the cockpit in class.") is None
    assert compile_words(()) is compile_words((" ",)) is None


def test_a_word_list_is_read(tmp_path):
    (tmp_path / "words").write_bytes(b"\xef\xbb\xbf# a comment\n\n one \r\ntwo words\n")
    assert read_words(tmp_path / "words") == ("one", "two words")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="latin cannot be read: it is not UTF-8"):
        read_words(tmp_path / "latin")
    with pytest.raises(ConfigError, match="none cannot be read: No such file"):
        read_words(tmp_path / "none")


def test_the_bundled_list_names_its_source_and_license():
    text = samples.suppressed_words_file().read_text(encoding="utf-8")
    assert re.search(r"LDNOOBW/.*\bcommit\b|\bcommit [0-9a-f]{40}\b", text)
    assert "CC BY 4.0" in text
    listed = set(read_words(samples.suppressed_words_file()))
    removed = {word for words in re.findall(r"# Removed .*:\n((?:#   .*\n)+)", text) for word in entries(words)}
    assert removed
    assert not removed & listed
    assert entries(re.search(r"# Added:\n((?:#   .*\n)+)", text)[1]) <= listed
    notice = (Path(samples.__file__).parent / samples.LICENSE).read_text(encoding="utf-8")
    assert "suppressed.en.txt" in notice
    assert "CC BY 4.0" in notice
    for pair in samples.PAIRS:
        assert set(open_bundle(samples.model(pair)).generation.suppress_words) == listed


def entries(comment):
    return set(" ".join(comment.replace("#", " ").split()).split("; "))


# ------------------------------------------------------------------------------------------------------ translations


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 4}, {"beam": 4, "num_best": 4}], ids=str)
def test_translations_have_no_suppressed_word_and_others_do_not_change(translator, search):
    plain = translator(SENTENCES, suppress_words=[], **search)
    clean = translator(SENTENCES, **search)
    assert sum(PATTERN.search(translation.text) is not None for translation in plain) > 8
    for before, after in zip(plain, clean, strict=True):
        assert not any(PATTERN.search(each.text) for each in (after, *after.alternatives))
        assert len(after.alternatives) < search.get("num_best", 1)
        if PATTERN.search(before.text):
            assert "suppressed" in flag_names(after)
            assert all("suppressed" in flag_names(each) for each in after.alternatives)
            assert after.text
        else:
            assert (after.text, after.score, after.flags) == (before.text, before.score, before.flags)
            kept = [each.text for each in before.alternatives if not PATTERN.search(each.text)]
            assert [each.text for each in after.alternatives] == kept


def test_the_settings_and_the_option_are_the_same(translator):
    options = {"suppress_words": list(WORDS)}
    assert translator(SENTENCES[:8]) == translator(SENTENCES[:8], **options)
    assert "suppress_words" in translator.bundle.generation.model_fields_set


def test_words_of_a_forced_prefix_are_kept(translator):
    if translator.engine.name == "hugging_face":
        pytest.skip("this engine supports no prefix")
    for translation in translator(SENTENCES[:8], prefix="The"):
        assert translation.text.startswith("The")
        assert not PATTERN.search(translation.text[3:])


def test_samples_have_no_suppressed_word(translator):
    if translator.engine.name == "hugging_face":
        pytest.skip("this engine supports no sampling")
    sampling = SamplingOptions(temperature=0.7)
    for translation in translator(SENTENCES[:8], sampling=sampling, num_best=3):
        assert not any(PATTERN.search(each.text) for each in (translation, *translation.alternatives))


def test_an_alignment_has_every_word_of_the_new_translation(translator):
    if translator.engine.name == "hugging_face":
        pytest.skip("this engine supports no attention")
    for translation in translator(SENTENCES, alignment="naive", soft_alignment=True):
        assert len(translation.weights) == len(translation.text.split())


# ------------------------------------------------------------------------------------------------- when nothing helps


class StubbornEngine:
    """Always returns the same hypotheses, as a model with one way to say it would."""

    name = "stubborn"

    def __init__(self, rows):
        self.rows, self.options = rows, []

    def translate(self, sources, options):
        self.options.append(options)
        attention = np.arange(12.0).reshape(1, 1, 4, 3)
        results = [
            EngineResult(Hypothesis(tokens, -1.0, -6.0, (-1.0, -2.0, -3.0, 0.0), True), attention)
            for tokens in self.rows
        ]
        return [tuple(results[: options.num_best]) for _ in sources]


def test_after_the_last_retry_a_clean_hypothesis_is_taken_or_the_word_is_masked():
    tokenizer = train("words", ["a bad word *** here"] * 3, 50)
    bad, good = (tuple(tokenizer.encode([text])[0]) for text in ("a bad word", "a word here"))
    source = heedful.engines.base.EncodedSource((5,), 9)
    options = heedful.engines.base.SearchOptions(beam=2)
    for rows, expected in (([bad, good], "a word here"), ([bad, bad], f"a {MASK} word")):
        engine = StubbornEngine(rows)
        suppressor = WordSuppressor(compile_words(("bad",)), engine, tokenizer)
        (results,) = engine.translate([source], options)
        (result,) = suppressor.replace_words(source, results, options)
        assert result.suppressed
        assert tokenizer.decode([result.hypothesis.tokens]) == [expected]
        assert len(engine.options) == 1 + MAX_RETRIES
        assert engine.options[-1].suppress_sequences == (bad[1:2],)
        hypothesis = result.hypothesis
        assert sum(hypothesis.log_probabilities) == hypothesis.log_probability == -6.0
        assert len(hypothesis.log_probabilities) == len(hypothesis.tokens) + 1 == result.attention.shape[2]
        assert result.attention[0, 0, [0, 1, -1]].tolist() == [[0, 1, 2], [3, 4, 5], [9, 10, 11]]


def test_misuse_is_explained():
    translator = heedful.load(samples.model("pt-en"), threads=1)
    with pytest.raises(HeedfulError, match="suppress_words must be a list of words, not a string"):
        translator("Olá.", suppress_words="the")


# ------------------------------------------------------------------------------------------- bundled models, commands


def test_the_bundled_models_answer_news_without_listed_words():
    """A short form of benchmarks/suppressed_words.py."""
    pattern = compile_words(read_words(samples.suppressed_words_file()))
    for pair in samples.PAIRS:
        translator = heedful.load(samples.model(pair), threads=1)
        translations = translator(news(pair, 100), beam=1) + translator(OFFENDERS if pair == "pt-en" else [])
        for translation in translations:
            assert not pattern.search(translation.text), translation


def news(pair, count):
    path = Path(os.environ.get("HEEDFUL_DATA", "none")) / "ntrex" / {
        "pt-en": "newstest2019-ref.por.txt.gz", "ru-en": "newstest2019-ref.rus.txt.gz",
    }[pair]  # fmt: skip
    return gzip.decompress(path.read_bytes()).decode().splitlines()[:count] if path.is_file() else []


def test_the_commands_suppress_words(tmp_path):
    (tmp_path / "words").write_text("# common\nthe\n")
    (tmp_path / "none").write_text("")
    (tmp_path / "text.pt").write_text("O gato dorme.\n", encoding="utf-8")
    model = write_with_words(tmp_path / "model", ("cat",))
    command = ["translate", str(model), str(tmp_path / "text.pt")]
    plain, default, changed = (
        CliRunner().invoke(app, [*command, "--json", *more])
        for more in (["--suppress-words", str(tmp_path / "none")], [], ["--suppress-words", str(tmp_path / "words")])
    )
    texts = [json.loads(each.stdout)["text"] for each in (plain, default, changed)]
    assert texts[0] == "The cat sleeps."
    assert "cat" not in texts[1].lower()
    assert "the" not in texts[2].lower().split()
    assert "output suppressed: The first choice contained a word that this model may not use." in changed.stderr
    wrong = CliRunner().invoke(app, [*command, "--suppress-words", str(tmp_path / "lost")])
    assert isinstance(wrong.exception, ConfigError)
    bulk = ["translate", str(model), "--bulk", str(tmp_path / "text.pt"), str(tmp_path / "text.en"), "--workers", "1"]
    assert CliRunner().invoke(app, [*bulk, "--suppress-words", str(tmp_path / "words")]).exit_code == 0
    assert (tmp_path / "text.en").read_text().strip() == texts[2]


def test_an_inspection_shows_an_answer_without_the_word(tmp_path):
    translator = heedful.load(write_with_words(tmp_path / "model", ("cat", "cats")), threads=1)
    (sentence,) = heedful.inspect(translator, "O gato dorme.", importance=False).trace.sentences
    assert sentence.target.text == translator("O gato dorme.").text
    assert "cat" not in f"{sentence.target.text} {sentence.tree.greedy}".lower().split()


def test_old_directories_without_the_key_suppress_nothing():
    assert GenerationSettings.check({"beam": 3}, Path("x")).suppress_words == ()
    assert TranslationOptions().suppress_words is None
    assert replace(TranslationOptions(), suppress_words=()).suppress_words == ()
