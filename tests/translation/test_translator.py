"""The translator: order, lines, lengths, options, and what it says of given answers."""

from dataclasses import replace
from functools import cache
from math import isfinite, nan
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful.alignment import hard_links
from heedful.engines.base import EngineResult, SamplingOptions
from heedful.errors import HeedfulError
from heedful.training.api import train
from heedful.training.statistics import multiple_sentences_share
from heedful.translation.translator import (
    BATCH_SENTENCES,
    BATCH_TOKENS,
    TranslatedSegment,
    TranslationOptions,
    Translator,
    make_batches,
)
from heedful.types import Hypothesis
from support.training_runs import MODEL, RECURRENT, WORDS, settings_of, write_corpus

PIECES = {"kind": "bpe", "vocab_size": 330}
SENTENCES = ["a red house", "the old man sees two dogs", "a", "three cats under a tree with the child", "the dog"]


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def model(request, tmp_path_factory):
    """A model directory; it has learned little, and that is no matter here."""
    folder = write_corpus(tmp_path_factory.mktemp(request.param), pairs=120)
    kind = MODEL if request.param == "transformer" else RECURRENT
    return train(settings_of(folder, folder / "run", model=kind, tokenizer=PIECES, steps=150))


@pytest.fixture(scope="module")
def translator(model):
    return heedful.load(model)


@given(st.lists(st.integers(1, 3 * BATCH_TOKENS), max_size=200))
def test_every_question_is_in_one_batch_that_is_not_too_large(lengths):
    found = make_batches(lengths)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert len(rows) <= BATCH_SENTENCES
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= BATCH_TOKENS


def test_one_text_gives_one_and_a_list_gives_a_list(translator):
    one = translator("a red house")
    assert isinstance(one, heedful.Translation)
    assert str(one) == one.text
    assert translator([]) == []
    assert [found.source for found in translator(SENTENCES)] == SENTENCES


def test_company_changes_nothing(translator):
    alone = [translator(text) for text in SENTENCES]
    for one, other in zip(alone, translator(SENTENCES), strict=True):
        assert one.text == other.text
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_lines_stay_lines_and_blank_ones_blank(translator):
    found = translator("a red house\n\nthe dog\n")
    assert [bool(line) for line in found.text.split("\n")] == [True, False, True, False]
    assert found.text.split("\n")[2] == translator("the dog").text
    empty = translator("")
    assert (empty.text, empty.tokens, empty.flags) == ("", (), ())


def test_a_long_line_is_cut_into_parts_that_were_seen_in_training(translator):
    line = " ".join(["the old man sees a red house."] * 20)
    (parts,) = translator.make_segments([line], TranslationOptions(), 0)
    assert len(parts) > 1
    assert all(len(part.ids) <= translator.max_source_tokens for part in parts)
    assert "".join(part.text + part.gap for part in parts) == line
    assert "long" not in {flag.name for flag in translator(line).flags}


@pytest.mark.parametrize("share", [None, 0.0, 0.29, 0.3, 1.0])
def test_lines_are_split_into_sentences_unless_training_lines_often_had_several(model, share):
    translator = heedful.load(model)
    statistics = {name: value for name, value in translator.bundle.statistics.items() if name != "sentences"}
    statistics |= {} if share is None else {"sentences": {"source": share}}
    translator = Translator(replace(translator.bundle, statistics=statistics), translator.engine)
    is_split = share is None or share < 0.3
    line = "A red house. The dog runs!  Who sees it?"
    (parts,) = translator.make_segments([line], TranslationOptions(), 0)
    assert len(parts) == (3 if is_split else 1)
    assert "".join(part.text + part.gap for part in parts) == line
    for choice, count in ((True, 3), (False, 1)):
        (parts,) = translator.make_segments([line], TranslationOptions(split_sentences=choice), 0)
        assert len(parts) == count
    # A prefix of two sentences cannot be the beginning of the first sentence's translation.
    (parts,) = translator.make_segments([line], TranslationOptions(prefix="Ein Haus. Der"), 0)
    assert len(parts) == 1


def test_a_split_line_is_the_translation_of_its_sentences(translator):
    whole = translator("A red house. The dog runs. The old man sees a house.", split_sentences=True)
    sentences = translator(["A red house.", "The dog runs.", "The old man sees a house."])
    assert whole.text == " ".join(sentence.text for sentence in sentences)
    assert whole.log_probability == pytest.approx(sum(sentence.log_probability for sentence in sentences), abs=1e-4)


def test_training_stores_how_many_lines_have_several_sentences():
    texts = ["One.", "One. Two.", "Dr. Who came.", "No?"]
    assert multiple_sentences_share(texts, "en") == 0.25
    assert multiple_sentences_share([], "en") == 0


def test_probabilities_add_up(translator):
    for found in translator(SENTENCES):
        ends = found.log_probability - sum(token.log_probability for token in found.tokens)
        assert ends <= 1e-6  # log p of the end token, or nothing where it was cut off
        if not any(token.text.startswith("<0x") for token in found.tokens):  # bytes are shown as such
            assert "".join(token.text for token in found.tokens).strip() == found.text


def test_what_was_said_has_the_probability_it_was_said_with(translator):
    said = translator(SENTENCES, beam=3)
    finished = [one for one in said if not {flag.name for flag in one.flags} & {"unfinished", "empty"}]
    given = translator.score_targets([one.source for one in finished], [one.text for one in finished])
    for one, answer in zip(finished, given, strict=True):
        if len(answer.hypothesis.tokens) == len(one.tokens):  # else the text is cut into other pieces than were said
            assert answer.hypothesis.log_probability == pytest.approx(one.log_probability, abs=1e-3)


def test_the_n_best(translator):
    found = translator("the old man", num_best=4)
    scores = [one.score for one in (found, *found.alternatives)]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)
    assert len({one.text for one in (found, *found.alternatives)}) > 1


def test_a_draw_depends_on_its_seed_and_place_alone(translator):
    def draw(seed, texts):
        return [one.text for one in translator(texts, sampling=SamplingOptions(temperature=2.0, seed=seed))]

    first = draw(1, SENTENCES)
    assert draw(1, SENTENCES) == first
    assert draw(1, SENTENCES[:2]) == first[:2]
    assert draw(2, SENTENCES) != first


def test_a_prefix_is_kept(translator):
    assert all(one.text.startswith("das haus") for one in translator(SENTENCES, prefix="das haus"))


@pytest.mark.parametrize("alignment", ["naive", "shifted", "best"])
def test_links_are_between_words_that_are_there(translator, alignment):
    for found in translator([*SENTENCES, " ".join(["the old man sees a house."] * 20)], alignment=alignment):
        words = len(found.source.split()), len(found.text.split())
        assert all(0 <= source < words[0] and 0 <= target < words[1] for source, target in found.alignment)
        assert len({target for _, target in found.alignment}) == len(found.alignment)


def test_weights_are_of_words_and_decide_the_links(translator):
    for found in translator([*SENTENCES, "", "the old man. " * 20], alignment="naive", soft_alignment=True):
        assert {len(row) for row in found.weights} <= {len(found.source.split())}
        assert len(found.weights) == len(found.text.split())
        assert all(min(row) >= 0 and sum(row) <= 1.01 for row in found.weights)
        assert found.alignment == hard_links(np.array(found.weights))


def test_a_line_break_that_a_model_spells_is_no_line_break(translator):
    spelled = [translator.target.encode([text])[0] for text in ("das", "haus")]
    newline = [number for number in range(300) if translator.target.pieces([number])[0] in ("<0x0A>", "<0x0D>")]
    assert len(newline) == 2
    tokens = (*spelled[0], *newline, *spelled[1])
    said = EngineResult(Hypothesis(tokens, -1.0, -1.0, (-0.1,) * len(tokens), True))

    class Spelling:
        name = "spelling"

        def translate(self, sources, options):
            return [(said,) for _ in sources]

    assert Translator(translator.bundle, Spelling())("the house").text == "das   haus"


def test_given_translations_are_aligned(translator):
    targets = [" ".join(WORDS.get(word, word) for word in text.split()) for text in SENTENCES]
    found = translator.align(SENTENCES, targets)
    assert [len(links) for links in found] == [len(target.split()) for target in targets]
    soft = translator.align(SENTENCES, targets, threshold=1e-6)
    assert all(set(some) <= set(more) for some, more in zip(found, soft, strict=True))
    assert translator.align([""], [""]) == [()]


@pytest.mark.parametrize("told", [{}, None])
def test_a_model_that_does_not_say_its_best_head(translator, told):
    other = replace(translator.bundle, statistics={**translator.bundle.statistics, "alignment": told})
    with pytest.raises(HeedfulError, match="naive or shifted"):
        Translator(other, translator.engine)("a", alignment="best")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"beam": 0}, "must be at least 1"),
        ({"num_best": 0}, "must be at least 1"),
        ({"alignment": "shiftet"}, "shifted"),
        ({"tag": "<2de>"}, "not a tag"),
    ],
)
def test_misuse_is_answered_in_words(translator, options, told):
    with pytest.raises(HeedfulError, match=told):
        translator("a red house", **options)


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {"temperature": nan}, {"top_k": 0}, {"top_p": 1.5}])
def test_a_draw_from_nothing_is_refused(wrong):
    with pytest.raises(HeedfulError, match=r"temperature|top-"):
        SamplingOptions(**wrong)


@pytest.mark.parametrize("wrong", [{"device": "xpu:99"}, {"device": "gpu"}, {"threads": 0}])
def test_a_machine_that_is_not_there(model, wrong):
    with pytest.raises(HeedfulError, match=r"cpu|between 1 and 1,024"):
        heedful.load(model, **wrong)


def test_an_engine_that_is_not_there(model):
    with pytest.raises(HeedfulError, match="torch"):
        heedful.load(model, engine="torsch")


def test_unequal_numbers_are_refused(translator):
    with pytest.raises(HeedfulError, match="got 1 sources but 0 translations"):
        translator.score_targets(["a"], [])


def test_a_model_without_attention_says_so(tmp_path):
    folder = write_corpus(tmp_path, pairs=120)
    bottleneck = {**RECURRENT, "encoder": {"kind": "bottleneck", "width": 16}}
    plain = heedful.load(train(settings_of(folder, folder / "run", model=bottleneck, tokenizer=PIECES, steps=2)))
    assert plain.bundle.statistics["alignment"] == {}
    assert isinstance(plain("a red house").text, str)
    with pytest.raises(HeedfulError, match="has no attention to source words"):
        plain("a red house", alignment="naive")


def test_a_draw_depends_on_its_line_and_not_on_the_lines_before(translator):
    def second(first):
        return translator([first, "a red house"], sampling=SamplingOptions(temperature=2.0, seed=3))[1].text

    assert len({second(text) for text in ("the dog", "", "the old man sees a house. " * 20)}) == 1


def test_a_full_stop_without_a_space_gets_one_where_the_target_has_spaces(translator):
    (parts,) = translator.make_segments(
        ["。".join(["the old man sees a red house"] * 8) + "。"], TranslationOptions(), 0
    )
    assert len(parts) > 1
    assert {translator.gap_after(part) for part in parts[:-1] if part.text.endswith("。")} <= {" "}
    wide = replace(translator.bundle, statistics={"scripts": {"target": {"CJK": 0.9}}})
    assert Translator(wide, translator.engine).gap_after(parts[0]) == parts[0].gap


def test_words_are_counted_through_segments_that_say_nothing(translator):
    blocks = iter([np.ones((3, 3)), np.ones((0, 1)), np.ones((2, 2))])
    translator = Translator(translator.bundle, translator.engine)
    translator.segment_attention = lambda *_: next(blocks)  # type: ignore[method-assign]
    (parts,) = translator.make_segments(["the old man"], TranslationOptions(), 0)
    part = TranslatedSegment(parts[0], EngineResult(Hypothesis((), 0.0, 0.0, (), True)), "")
    glued = [replace(part, segment=replace(parts[0], gap=gap)) for gap in ("", " ", "")]
    assert translator.line_attention(glued, None).shape == (5, 5)


@pytest.mark.parametrize("given", ["the dog", b"the dog", [b"x"], [None]])
def test_what_is_not_a_list_of_texts(translator, given):
    with pytest.raises(HeedfulError, match="must be a string or a list of strings"):
        translator.score_targets(given, given)


@pytest.mark.parametrize(
    "wrong", [{"length_penalty": nan}, {"length_penalty": -5.0}, {"alignment_threshold": 5.0, "alignment": "naive"}]
)
def test_numbers_out_of_range(translator, wrong):
    with pytest.raises(
        HeedfulError, match=r"length penalty must be between 0 and 8|alignment threshold must be above 0"
    ):
        translator("a", **wrong)


def test_more_than_a_model_can_hold_is_said(translator):
    if translator.max_tokens > 10_000:
        return  # a recurrent model holds any length
    with pytest.raises(HeedfulError, match=r"line 1 has [\d,]+ pieces; this model supports"):
        translator.score_targets(["the dog " * 1500], ["der hund"])
    with pytest.raises(HeedfulError, match=r"the prefix has [\d,]+ pieces; this model produces at most"):
        translator("a", prefix="das haus " * 1500)


@cache
def untaught() -> Translator:
    folder = write_corpus(Path(mkdtemp()), pairs=120)
    return heedful.load(train(settings_of(folder, folder / "run", tokenizer=PIECES, steps=4)))


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec=None), max_size=80))
def test_any_text_is_answered(text):
    found = untaught()(text, beam=2)
    assert found.text.count("\n") == text.count("\n")
    assert isfinite(found.log_probability)


def test_every_source_needs_a_target(translator):
    with pytest.raises(HeedfulError, match="got 2 sources but 1 translations"):
        translator.score_targets(["a", "b"], ["c"])
