"""The sentence at the end of a training: what it says, and what it depends on."""

import json
import random
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.training.events import Began, Stepped, Validated, event_record
from heedful.training.history import History
from heedful.training.usability import (
    NUM_EXTREMES,
    THRESHOLDS,
    ScoredSample,
    UsabilityFigures,
    assess_run,
    choose_metric,
    describe_usability,
    find_extremes,
    guess_needed_steps,
    measure_loss_drop,
    measure_step_seconds,
    round_up,
    suggest_seconds,
    usability_level,
)

FIGURES = UsabilityFigures(8068, 1681, "bleu", 31.58, 29.18, 33.99, 1000, 0.4, 42.2, 1.7, 0.017, 0.5)
LEVELS = ("not-usable", "not-yet", "unclear", "drafts", "good")


def figures(**changes):
    return replace(FIGURES, **changes)


# ------------------------------------------------------------------------------------------------ the sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Usable for drafts: BLEU 31.6 (29.2 to 34.0) on 1,000 validation sentences."),
        (
            {"value": 55.15, "low": 52.9, "high": 57.4, "loss_drop": 0.06},
            "Good: BLEU 55.1 (52.9 to 57.4) on 1,000 validation sentences; still improving at the end.",
        ),
        (
            {"step": 72, "value": 1.2, "low": 0.9, "high": 1.5, "loss_drop": 0.2},
            "Not usable yet: 72 of about 1,700 steps; BLEU 1.2 (0.9 to 1.5) on 1,000 validation sentences; still "
            "improving at the end.",
        ),
        (
            {"value": 12.0, "low": 11.0, "high": 13.0},
            "Not usable: BLEU 12.0 (11.0 to 13.0) on 1,000 validation sentences; more time will hardly help: use more "
            "or better training pairs.",
        ),
        (
            {"value": 0.3, "low": 0.2, "high": 0.4, "match_gain": 0.1, "match_margin": 0.2},
            "Not usable: BLEU 0.3 (0.2 to 0.4) on 1,000 validation sentences; not clearly better than copying the "
            "source text (BLEU 0.4); the outputs do not depend on the source sentences: check that the lines of both "
            "sides belong together.",
        ),
        (
            {"value": 24.0, "low": 14.5, "high": 35.5, "sentences": 30},
            "Unclear: BLEU 24.0 (14.5 to 35.5) on 30 validation sentences; a model for drafts needs about 20.",
        ),
        (
            {"value": 70.0, "low": 68.0, "high": 72.0, "copy_value": 75.25},
            "Not usable: BLEU 70.0 (68.0 to 72.0) on 1,000 validation sentences; not clearly better than copying the "
            "source text (BLEU 75.2); more time will hardly help: use more or better training pairs.",
        ),
        (
            {"metric": "chrf", "value": 50.0, "low": 48.0, "high": 52.0},
            "Usable for drafts: chrF 50.0 (48.0 to 52.0) on 1,000 validation sentences.",
        ),
    ],
)
def test_worked_sentences(changes, sentence):
    assert describe_usability(figures(**changes)) == sentence


scores = st.floats(0, 100)


@st.composite
def any_figures(draw):
    value = draw(scores)
    return UsabilityFigures(
        step=draw(st.integers(1, 10_000)),
        needed_steps=draw(st.integers(0, 10_000)),
        metric=draw(st.sampled_from(sorted(THRESHOLDS))),
        value=value,
        low=value - draw(st.floats(0, value)),
        high=draw(st.floats(value, 110)),
        sentences=draw(st.integers(1, 5000)),
        copy_value=draw(scores),
        match_gain=draw(st.floats(-10, 90)),
        match_margin=draw(st.floats(0, 100)),
        loss_drop=draw(st.floats(-1, 1)),
        step_seconds=draw(st.floats(0, 100)),
    )


@given(any_figures())
def test_a_model_is_called_usable_only_if_the_whole_interval_is(known):
    level = usability_level(known)
    drafts, good = THRESHOLDS[known.metric]
    if level in ("good", "drafts"):
        assert known.low >= (good if level == "good" else drafts)
        assert known.low > known.copy_value
    if level == "not-usable":
        assert known.low < drafts or known.low <= known.copy_value


@given(any_figures(), st.floats(0, 50))
def test_a_higher_score_is_never_called_worse(known, gain):
    higher = replace(known, value=known.value + gain, low=known.low + gain, high=known.high + gain)
    assert LEVELS.index(usability_level(higher)) >= LEVELS.index(usability_level(known))


@given(any_figures())
def test_the_sentence_has_its_figures_and_survives_being_recorded(known):
    sentence = describe_usability(known)
    assert f"{known.value:.1f} ({known.low:.1f} to {known.high:.1f}) on {known.sentences:,} validation" in sentence
    assert describe_usability(UsabilityFigures(**json.loads(json.dumps(asdict(known))))) == sentence


def test_a_fine_tuned_model_is_not_told_to_take_more_steps():
    weak = figures(needed_steps=0, step=10, value=5.0, low=4.0, high=6.0)
    assert usability_level(weak) == "not-usable"
    assert "steps" not in describe_usability(weak)


def test_a_short_run_is_not_blamed_on_its_corpus():
    random_outputs = figures(value=0.3, low=0.2, high=0.4, match_gain=0.0, step=20)
    assert usability_level(random_outputs) == "not-yet"
    assert usability_level(replace(random_outputs, step=400)) == "not-usable"


# ------------------------------------------------------------------------------------------------ measured


def records(*events):
    return History.from_records(map(event_record, events))


def began(parameters=3_000_000):
    return Began(0, 100, parameters, 5000, 2.0, None, 1, "cpu", "fp32")


def stepped(step, tokens):
    return Stepped(step, 100, 3.0, 20.0, 0.5, 1e-3, tokens, 9_000.0, 1.0, 0, float(step), 1.0)


def validated(step, loss):
    return Validated(step, loss, 7.4, 20.0, 40.0, True, 1.0, (), "ema")


ENGLISH = ("one", "two", "three", "four", "five", "six", "seven", "dog", "cat", "tree", "house", "river", "road")
MIRRORED = {word: word[::-1] + "x" for word in ENGLISH}


@pytest.fixture(scope="module")
def pairs():
    draw = random.Random(5)
    sources = [draw.choices(ENGLISH, k=draw.randint(5, 12)) for _ in range(200)]
    return [" ".join(one) for one in sources], [" ".join(MIRRORED[word] for word in one) for one in sources]


def assess(outputs, pairs, *events, **options):
    options = {"is_finetuned": False, "keep_sentences": True} | options
    return assess_run(outputs, *pairs, records(began(), stepped(2000, 4_000_000), *events), **options)


def test_right_outputs_are_good(pairs):
    assessment = assess(pairs[1], pairs)
    assert assessment.figures.value > 99.9
    assert usability_level(assessment.figures) == "good"
    assert assessment.figures.needed_steps == 1500
    assert assessment.figures.step == 2000


def test_outputs_of_other_sentences_do_not_depend_on_the_source(pairs):
    shuffled = random.Random(2).sample(pairs[1], len(pairs[1]))
    assessment = assess(shuffled, pairs)
    assert not assessment.figures.depends_on_source
    assert usability_level(assessment.figures) == "not-usable"
    constant = assess(["one two three"] * len(pairs[1]), pairs).figures
    assert not constant.depends_on_source


def test_outputs_with_a_few_right_words_depend_on_the_source(pairs):
    partly = [" ".join(text.split()[:2]) for text in pairs[1]]
    found = assess(partly, pairs).figures
    assert found.depends_on_source
    assert found.low <= found.value <= found.high


def test_a_copy_is_compared_with_the_source(pairs):
    found = assess(pairs[1], (pairs[1], pairs[1])).figures
    assert not found.beats_copying
    assert usability_level(found) == "not-usable"


def test_sentences_can_be_left_out(pairs):
    assert assess(pairs[1], pairs, keep_sentences=False)[1:] == ((), ())
    assert assess(pairs[1], pairs, is_finetuned=True).figures.needed_steps == 0


def test_one_sentence_is_enough_not_to_fail():
    assert not assess(["a b"], (["x y"], ["a b"])).figures.depends_on_source


def test_the_metric_follows_the_writing():
    assert choose_metric(["Der Hund schläft im Garten."]) == "bleu"
    assert choose_metric(["狗在花园里睡觉，因为天气非常好而且没有人打扰它。"]) == "chrf"
    assert choose_metric([""]) == "bleu"


def test_needed_steps_follow_weights_and_batches():
    assert guess_needed_steps(records(began(), stepped(10, 20_000))) == 1500
    assert guess_needed_steps(records(began(100), stepped(10, 20_000))) == 1000
    assert guess_needed_steps(records()) == 1000
    assert [round_up(number) for number in (7, 1000, 1001, 1665, 48_211)] == [7, 1000, 1100, 1700, 49_000]


def test_the_loss_drop_is_that_of_the_last_fifth():
    falling = [validated(step, loss) for step, loss in ((20, 4.0), (80, 2.0), (90, 1.9), (100, 1.5))]
    assert measure_loss_drop(records(*falling)) == pytest.approx(0.25)
    assert measure_loss_drop(records(validated(100, 2.0))) == 0.0
    assert measure_loss_drop(records(validated(80, float("nan")), validated(100, 2.0))) == 0.0
    assert measure_loss_drop(records()) == 0.0


@given(st.lists(st.builds(ScoredSample, st.text("ab"), st.just("r"), st.just("o"), scores), max_size=30))
def test_best_and_worst_are_different_sentences(samples):
    best, worst = find_extremes(samples)
    distinct = set(samples)
    assert len(best) == len(worst) == min(NUM_EXTREMES, len(distinct) // 2)
    assert not set(best) & set(worst)
    rest = sorted(sample.chrf for sample in distinct)
    assert sorted(sample.chrf for sample in best) == rest[len(rest) - len(best) :]
    assert [sample.chrf for sample in worst] == rest[: len(worst)]


def test_the_suggested_time_is_for_the_needed_steps():
    assert suggest_seconds(figures(step=200, needed_steps=1000), 60.0) == 60.0 + 800 * 0.5 / 0.8
    assert suggest_seconds(figures(step=990, needed_steps=1000), 60.0) == 120.0
    assert suggest_seconds(figures(step=990, needed_steps=0), 60.0) == 120.0
    assert measure_step_seconds(records(stepped(10, 18_000))) == 0.2  # 1,800 tokens at 9,000 tokens per second
    assert measure_step_seconds(records()) == 0.0
