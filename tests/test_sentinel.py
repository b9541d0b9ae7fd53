"""The sentinel: every alarm rings where it should, is silent where it should be, and has a documented meaning."""

import re
import subprocess
import sys
import time
from functools import cache
from math import comb, exp
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.corpus import rules
from heedful.sentinel import (
    MEANINGS,
    Flag,
    checks,
    flag_rates,
    frequent_words,
    input_flags,
    output_flags,
    unknown_ids,
)
from heedful.sentinel.languages import surprise
from heedful.sentinel.numbers import NUMBER_WORDS, NUMERALS, find_lost_numbers, parse_numbers
from heedful.text.small_words import SMALL_WORDS
from heedful.text.tokenizer import train
from heedful.training.statistics import count_scripts
from support import corpus_faults as plant

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # the faults of the exam are planted here too

import sentinel as exam  # noqa: E402  # after its folder is known

sys.path.remove(str(ROOT / "benchmarks"))

STATISTICS = {  # what a model directory's training_statistics.json says
    "lengths": {"source": {"mean": 14.8, "p99": 30, "longest": 49}, "target": {"mean": 15.6, "p99": 34, "longest": 58}},
    "ratio": 1.05,
    "scripts": {"source": {"LATIN": 1.0}, "target": {"LATIN": 0.98, "CYRILLIC": 0.02}},
    "words": {"source": {"a": 0.3, "in": 0.2, "is": 0.2, "man": 0.0, "and": 0.05}},
    "confidence": {"p1": -0.9, "p5": -0.73, "p50": -0.34},
}
SOURCE, TARGET = "A man in a red shirt is standing there.", "Dort steht ein Mann in einem roten Hemd."


def flags_of(source: str, output: str, **more: object) -> dict[str, str]:
    """Name -> detail; lengths in words where none are given."""
    given = {"tokens": len(output.split()), "source_tokens": len(source.split()), "statistics": STATISTICS, **more}
    return {flag.name: flag.detail for flag in output_flags(source, output, **given)}


# ------------------------------------------------------------------------------------------------------------- inputs

WORDS = train("words", [SOURCE] * 3, 50)


def test_a_usual_input_rings_nothing():
    assert input_flags(SOURCE, WORDS.encode([SOURCE])[0], STATISTICS, unknown_ids(WORDS)) == ()


@pytest.mark.parametrize(
    ("text", "name", "detail"),
    [
        (" \n", "empty", "There is no text."),
        ("A dog and a cat is standing there.", "unknown", "The model does not know much of this text."),
        ("A man , in a red shirt", "tokenized", "` , ` looks like the output of a tokenizer."),
        ("A man in a red sh@@ irt", "tokenized", "`@@ ` looks like the output of a tokenizer."),
        ("\u2581A man", "tokenized", "`\u2581` looks like the output of a tokenizer."),
        ("Мужчина в красной рубашке is standing there.", "script", "Most letters are not Latin."),
        ("Ein Mann steht dort und er wartet.", "language", "The text seems to be in another language (de)."),
        ("dlouhá bílá loď pluje kolem hor " * 3, "language", "The text seems to be in another language."),
        ("in " * 50, "long", "The text is longer than every text that the model was trained on."),
    ],
)
def test_an_unusual_input_rings(text, name, detail):
    text_flags = input_flags(text, WORDS.encode([text.strip()])[0], STATISTICS, unknown_ids(WORDS))
    assert Flag(name, "input", detail) in text_flags


def test_a_character_spelled_in_bytes_counts_once():
    subwords = train("bpe", [SOURCE, TARGET] * 5, 300)
    few, many = "A man in a red shirt 🙂", "Мужчина в красной рубашке"
    some, all_of_them = subwords.encode([few, many])
    assert sum(number in unknown_ids(subwords) for number in some) == 1
    assert sum(number in unknown_ids(subwords) for number in all_of_them) == len(many.replace(" ", ""))
    assert [flag.name for flag in input_flags(few, some, {}, unknown_ids(subwords))] == []
    assert [flag.name for flag in input_flags(many, all_of_them, {}, unknown_ids(subwords))] == ["unknown"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["word", " ,", " .", "@@", " ", "@-@", "&apos;", "n't", "'s", "\u2581", "。"])))
def test_tokenized_means_what_the_doctor_means(pieces):
    text = "".join(pieces)
    doctor = f"{rules.TOKENIZED}|{rules.SUBWORDS}".replace(r"\x{2581}", "\u2581")
    assert bool(checks.TOKENIZED.search(text)) == bool(re.search(doctor, text))


@settings(max_examples=200, deadline=None)
@given(st.characters(categories=["L"]))
def test_scripts_are_those_of_the_training_statistics(letter):
    assert set(count_scripts([letter])) == {checks.script_of(letter)}


# ------------------------------------------------------------------------------------------------------------ outputs


def test_a_good_output_rings_nothing():
    assert flags_of(SOURCE, TARGET, log_probability=-3.0) == {}


@pytest.mark.parametrize(
    ("source", "output", "name", "detail"),
    [
        (SOURCE, " ", "empty", "The output is empty."),
        (SOURCE, SOURCE, "copied", "The output repeats the source."),
        (SOURCE, "a man in a red shirt is standing there", "copied", "The output repeats the source."),
        ("RED SHIRTS ARE STANDING THERE", "RED SHIRTS ARE STANDING THERE", "copied", "The output repeats the source."),
        (SOURCE, "Dort steht" + " ein Mann" * 3, "looping", "`ein mann` occurs 3 times in a row."),
        (SOURCE, "ein Mann" + " Mann" * 4, "looping", "`mann` occurs 5 times in a row."),
        (SOURCE, "Dort, wo er ist, dort, wo er ist", "looping", "`dort wo er ist` occurs 2 times in a row."),
        (SOURCE, "Dort stehehehehehe ein Mann", "looping", "`he` occurs 5 times in a row."),
        (SOURCE, "あかいシャツ" * 3, "looping", "`あかいシャツ` occurs 3 times in a row."),
        (SOURCE, "Dort.", "length", "The output is much shorter than usual."),
        (
            SOURCE,
            "Dort steht ein Mann",
            "length",
            "The output is much shorter than usual, and the full stop is missing.",
        ),
        (SOURCE, "So ist das, " * 10, "length", "The output is much longer than usual."),
        ("He is 30 years old.", "Er ist 13 Jahre alt.", "numbers", "Not in the output: 30."),
        ("See http://a.org/b, ok?", "Siehe http://a.org/c, ja?", "urls", "Not in the output: http://a.org/b."),
        ("Write to me@a.org.", "Schreib an mich@a.org.", "urls", "Not in the output: me@a.org."),
        ("Ask @somebody now", "Frag @jemand jetzt", "urls", "Not in the output: @somebody."),
        (SOURCE, "Мужчина в красной рубашке стоит там.", "script", "Most letters are not Latin."),
        ("Hello {name}, %d files", "Hallo {Name}, %d Dateien", "placeholders", "Not in the output: {name}."),
        ("%s of %s", "%s", "placeholders", "Not in the output: %s."),
        ("Hello {name}", "Hallo {name} {name}", "placeholders", "Only in the output: {name}."),
        ("<b>Now</b> or&nbsp;never", "<b>Jetzt</B> oder nie", "markup", "Not in the output: </b>, &nbsp;."),
        ("See [this](a.html) page", "Siehe [diese] (a.html) Seite", "markup", "Not in the output: […](a.html)."),
        (f"{SOURCE} He waits here.", TARGET[:25] + ".", "omitted", "The source has 2 sentences, the output has 1."),
    ],
)  # fmt: skip
def test_a_bad_output_rings(source, output, name, detail):
    assert flags_of(source, output)[name] == detail


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("Tom Smith, John O'Neil", "Tom Smith, John O'Neil"),  # names
        ("Vincent van der Bellen", "Vincent van der Bellen"),
        ("NATO UNESCO", "NATO UNESCO"),
        ("https://example.org/page 12:30", "https://example.org/page 12:30"),
        ("“No, no, no, no, no!”", "„Nein, nein, nein, nein, nein!“"),  # the source says so too
        ("Goooooooooal!", "Tooooooooooor!"),
        ("Hm.", "Das weiß ich nicht."),  # short texts vary
        ("See https://a.org/.", "Siehe a.org"),
        ("There is no place like New York City.", "Нет места лучше, чем New York City."),
    ],
)
def test_what_is_right_rings_nothing(source, output):
    known = {**STATISTICS, "scripts": {"target": {"CYRILLIC": 0.9, "LATIN": 0.01}}} if "Нет" in output else STATISTICS
    assert flags_of(source, output, statistics=known) == {}


def test_a_loop_is_found_beside_a_longer_run_that_is_none():
    apart = "one two three four five six and so on and so forth until the end of it all"
    text = f"{apart} one two three four five six no no no no no"
    assert checks.find_loop(text.split(), checks.MIN_LOOP_WORDS) == ("no", 5)


def test_cut_off_and_unsure():
    assert flags_of(SOURCE, TARGET, finished=False) == {"unfinished": "The end is missing: the output was too long."}
    assert flags_of(SOURCE, TARGET, log_probability=-9.0) == {"unsure": "The model is much less sure than usual."}
    assert flags_of(SOURCE, TARGET, log_probability=-8.0) == {}


def test_the_figures_are_beside_the_sentence():
    lengths = {"tokens": 4, "source_tokens": 9, "statistics": STATISTICS}
    (unsure, *_) = output_flags(SOURCE, TARGET, log_probability=-9.0, **{**lengths, "tokens": 8})
    assert unsure.figures == {"log_probability_per_token": -1.0, "threshold": -0.9}
    (short,) = output_flags(SOURCE, "Dort steht ein Mann", **lengths)
    assert short.figures == {"tokens": 4, "source_tokens": 9, "times_usual_length": 0.42}
    assert short == Flag(short.name, short.side, short.detail)  # a line has one flag for all its segments


def test_a_part_without_translation_or_attention_is_omitted():
    assert flags_of(SOURCE, TARGET, untranslated=["Yes."]) == {"omitted": "Not in the output: `Yes.`."}
    attention = [1.0, 1.1, 0.9, 0.05, 0.01, 0.02, 1.2, 1.0, 1.0]
    assert flags_of(SOURCE, TARGET, attention=attention) == {"omitted": "The output may lack: `a red shirt`."}
    assert flags_of(SOURCE, TARGET, attention=attention[:-1]) == {}  # for other words
    assert flags_of(SOURCE, TARGET, attention=[1.0, 0.0, 1.0, 0.0, 0.0, *attention[5:]][:9]) != {}
    assert flags_of(SOURCE, TARGET, attention=[1.0, 1.0, 0.0, 0.0, *[1.0] * 5]) == {}


PLACEHOLDERS = [
    "{name}",
    "{0}",
    "{}",
    "%s",
    "%d",
    "%(x)d",
    "%1$s",
    "$name",
    "${name}",
    "{{name}}",
    "{x[0]!r:>8}",
    "%-5.2f",
]
MARKUP = ["<b>", "</b>", "<br/>", '<a href="x">', "&nbsp;", "&#39;", "[…](http://a.b/c)"]


@pytest.mark.parametrize("part", [*PLACEHOLDERS, *MARKUP])
def test_every_part_that_must_be_kept_is_missed(part):
    """Kept: silent. Lost, changed or doubled: an alarm."""
    name = "markup" if part in MARKUP else "placeholders"
    source, output = f"A man {part} is there.", f"Ein Mann {part} ist da."
    assert name not in flags_of(source, output)
    for damaged in ("", part[:-1], f"{part} {part}", part.replace("n", "m")):
        assert damaged == part or name in flags_of(source, output.replace(part, damaged)), damaged


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("3 < 5 > 2", "5 > 3, 3 > 2"),
        ("I am 100% sicher", "100 % sure"),
        ("50 %d'alcool", "50% alcohol"),
        ("a <b and c> d", "a kleiner b und c groesser d"),
        ("Write to <me@a.org>.", "Schreib an me@a.org."),
        ("Usage: copy <file>", "Aufruf: copy <Datei>"),
        ("AT&T pays US$50 and $5; A$AP", "AT & T zahlt 50 US-Dollar und 5 Dollar; ASAP"),
        ("5 is { 1, 4 }, 20 % of it", "5 ist (1, 4), 20% davon"),
        ("He is [sic] (1) here", "Er ist hier (1)"),
    ],
)
def test_plain_text_has_neither_placeholders_nor_markup(source, output):
    assert not {"placeholders", "markup"} & flags_of(source, output).keys()


# ---------------------------------------------------------------------------------------------------------- languages


@pytest.mark.parametrize("language", SMALL_WORDS)
def test_every_language_is_known_from_its_own_words(language):
    """A model of this language says nothing about its words, and names every other language in the table."""
    known = {"words": {"source": frequent_words([SMALL_WORDS[language]] * 5)}}
    for other, words in SMALL_WORDS.items():
        foreign = [word for word in words.split() if word not in SMALL_WORDS[language].split()] * 4
        names = [flag.name for flag in input_flags(" ".join(foreign or words.split()), (), known)]
        assert names == ([] if other == language else ["language"]), other


def test_short_texts_and_names_are_in_no_language():
    known = {"words": {"source": frequent_words([SMALL_WORDS["en"]] * 5)}}
    for text in ("Das ist gut", "", "12 34 56 78 90", "Angela Merkel, Wladimir Putin, Emmanuel Macron, Boris Johnson"):
        assert [flag for flag in input_flags(text, (), known) if flag.name == "language"] == []


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0, 1))
def test_surprise_bounds_the_probability_of_so_few_words(num_frequent, num_words, share):
    if num_frequent > num_words:
        return
    tail = sum(comb(num_words, k) * share**k * (1 - share) ** (num_words - k) for k in range(num_frequent + 1))
    assert tail <= exp(-surprise(num_frequent, num_words, share)) * (1 + 1e-9)


@pytest.mark.parametrize("missing", STATISTICS)
def test_what_is_not_known_no_alarm_speaks_of(missing):
    """Silent: one alarm for each key; the others ring as before."""
    silent = {"lengths": {"long"}, "ratio": {"length"}, "scripts": {"script"}, "words": {"language"}}
    silent = {**silent, "confidence": {"unsure"}}[missing]
    text = "мужчина " * 50
    worst = {"log_probability": -999.0, "tokens": 50, "source_tokens": 3}

    def rung(known: dict[str, object]) -> set[str]:
        before = {flag.name for flag in input_flags(text, [1] * 50, known)}
        return before | set(flags_of("A man there.", text, statistics=known, **worst))

    rest = {key: value for key, value in STATISTICS.items() if key != missing}
    assert rung(STATISTICS) - rung(rest) == silent
    assert rung(dict.fromkeys(STATISTICS)) == rung({}) == {"looping"}


def test_what_training_does_itself_is_no_alarm():
    tokenized = [("a man , there .", "ein Mann , dort ."), ("one dog .", "ein Hund ."), ("2 men", "Männer")] * 10
    known = flag_rates(tokenized)
    assert known["input"] == {"tokenized": pytest.approx(2 / 3)}
    assert known["output"] == {"numbers": pytest.approx(1 / 3)}
    assert [flag.name for flag in input_flags("a dog .", [], {})] == ["tokenized"]
    assert input_flags("a dog .", [], {"usual": known}) == ()
    assert flags_of("He is 30.", "Er ist 13.", statistics={"usual": known}) == {}
    assert flag_rates([]) == {"input": {}, "output": {}}


# ------------------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("1,234.50 euros", "1.234,5 Euro"),
        ("1 234 567 people", "1,234,567 Menschen"),
        ("version 2.6.32", "Version 2.6.32"),
        ("0.125", "0,125"),
        ("at 12.30", "um 12:30"),
        ("on 5 June 200 people", "on June 5 200 people"),
        ("2012-06-05", "5.6.2012"),
        ("$1,500", "1,5 тыс. долларов"),
        ("2.4 million", "240 万"),
        ("2 billion", "2000 Millionen"),
        ("1.5 billion", "1.500 millones"),
        ("at 7:30 pm", "um 19.30 Uhr"),
        ("um 17.00 Uhr", "at 5 pm"),
        ("at 0530", "um 5.30 Uhr"),
        ("à 12 h 00", "at 1200 GMT"),
        ("in 30 minutes", "in einer halben Stunde"),
        ("at 2:30", "в половине третьего"),
        ("2.5 euros", "zweieinhalb Euro"),
        ("in the 1990s", "in den 90er Jahren"),
        ("in the 1980s", "in den Achtzigern"),
        ("2015-16", "2015-2016"),
        ("since the 1800s", "depuis le XIXe siècle"),
        ("10 miles away, 6 inches of it", "16 km entfernt, 15 cm davon"),
        ("27 °C", "80 degrees"),
        ("the l10n files", "die Lokalisierungsdateien"),
        ("9月10日", "10 September"),
        ("the 19th century", "le XIXe siècle"),
        ("3 dogs", "drei Hunde"),
        ("a family of 4", "eine vierköpfige Familie"),
        ("1 day", "a day"),
        ("25 men", "fünfundzwanzig Männer"),
        ("180 grams", "сто восемьдесят грамм"),
        ("$300", "trezentos dólares"),
        ("2,000 years", "two thousand years"),
        ("3 men", "男が三人"),
        ("٣٤ men", "34 Männer"),
        ("x86", "x86"),
    ],
)
def test_a_number_may_be_written_in_many_ways(source, output):
    assert find_lost_numbers(source, output) == []


@pytest.mark.parametrize(
    ("source", "output", "gone"),
    [
        ("He paid $30.", "Er zahlte.", ["30"]),
        ("3.5 percent", "35 Prozent", ["3.5"]),
        ("3.5 percent", "5,3 Prozent", ["3.5"]),
        ("1,234 men", "1,235 Männer", ["1,234"]),
        ("1987", "1978", ["1987"]),
        ("5 men and 7 women", "fünf Männer", ["7"]),
        ("5 men", "50 Männer", ["5"]),
        ("25 men", "zwanzig Männer", ["25"]),
        ("in 2016 with 16 men", "2016 mit Männern", ["16"]),
        ("7 men", "19 Männer", ["7"]),  # nobody speaks of the time
        ("10 miles away", "19 km entfernt", ["10"]),
        ("16 men", "10 Männer", ["16"]),  # nobody speaks of miles
        ("use id3lib", "mit idlib", ["3"]),
        ("on the A8", "auf der A9", ["8"]),
        ("54,000 men", "54,00 Männer", ["54,000"]),
        ("in 2013", "im Jahr 013", ["2013"]),
        ("apache2 and one more", "apache und zwei andere", ["2"]),
        ("Type 1 or H5N1", "Typ 1 oder H5N2", []),  # one of two equal numbers: not found
        ("1 man", "3 Männer, eine Frau", ["1"]),
    ],
)
def test_what_is_lost_or_changed_is_said_as_written(source, output, gone):
    assert find_lost_numbers(source, output) == gone


def test_values_of_numbers():
    assert parse_numbers("1.234,50 and 05 and 0.0 and 1.2.2003") == {
        "1234.5": "1.234,50",
        "5": "05",
        "0": "0.0",
        "1": "1",
        "2": "2",
        "2003": "2003",
    }


@pytest.mark.parametrize("language", NUMBER_WORDS)
def test_every_language_spells_every_numeral(language):
    assert len(NUMBER_WORDS[language].split()) == len(NUMERALS)


# --------------------------------------------------------------------------------------------------- meanings, safety


def test_every_alarm_has_a_meaning_and_a_paragraph():
    named = {"empty", "suppressed", *checks.INPUT_CHECKS, *checks.OUTPUT_CHECKS}
    page = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    assert set(MEANINGS) == named
    assert re.findall(r"^### `(\w+)`\n\n\S", page, re.MULTILINE) == list(MEANINGS)


TEXTS = st.one_of(
    st.text(),
    st.lists(st.sampled_from(["a", "Ж", "你", "12", "1,234.5", "@x", "http://x", "\x1b[2J", ".", " ", "no "])).map(
        "".join
    ),
)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS, st.sets(st.sampled_from(sorted(STATISTICS))), st.integers(0, 99), st.integers(0, 99))
def test_any_text_is_looked_at_and_what_is_said_is_safe_to_show(source, output, keys, tokens, source_tokens):
    known = {key: STATISTICS[key] for key in keys}
    lengths = {"tokens": tokens, "source_tokens": source_tokens}
    flags = output_flags(source, output, log_probability=-5.0, finished=False, statistics=known, **lengths)
    for flag in (*flags, *input_flags(source, range(tokens), known, {1, 2})):
        assert flag.name in MEANINGS
        assert flag.detail.isprintable()
        assert 5 < len(flag.detail) < 450


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        "%",
        "<a ",
        "&#",
        "[(",
        "${",
        "{{a",
        "Abcd. ",
        "7",
        "1,234,",
        "1.",
        "@",
        "a",
        "a@",
        ".)",
        " .",
        "http://",
        "ab ",
        "\U0001d7db",
        "12 ",
        "ÀЖ",
        "-",
        "\n",
    ],
)
def test_endless_texts_take_little_time(unit):
    begin = time.process_time()
    text = unit * (50_000 // len(unit))
    distinct = " ".join(map(str, range(12_000)))
    for source, output in ((text, text[:-1] + "x"), (f"{text} 7", "x"), (text, distinct), (distinct, text)):
        output_flags(source, output, tokens=9, source_tokens=9, statistics=STATISTICS)
        input_flags(source, (), STATISTICS)
    assert time.process_time() - begin < 10


# --------------------------------------------------------------------------------------------------------------- exam


@cache
def course_of_made_up_sentences() -> exam.Course:
    """A small corpus with numbers in it."""
    draw, pairs = Random(1), []
    for source, target in plant.sentences(400):
        whole, part = draw.randrange(100, 9_000), draw.randrange(1, 100)
        pairs.append(
            (f"{source[:-1]} {whole:,} {part}.{whole % 9 + 1}%.", f"{target[:-1]} {whole} {part},{whole % 9 + 1} %.")
        )
    tokenizer = train("words", [text for pair in pairs for text in pair], 4_000)
    known = exam.statistics(tokenizer, pairs)
    return exam.Course("made up", "made up", tokenizer, known, tuple(exam.Pair(*pair) for pair in pairs))


@pytest.mark.parametrize("name", exam.FAULTS)
def test_planted_faults_are_found(name):
    count, found, missed = exam.recall(exam.FAULTS[name], [course_of_made_up_sentences()], 40, seed=1)
    assert count == 40
    assert found >= 39, missed


def test_made_up_translations_are_left_in_peace():
    course = course_of_made_up_sentences()
    assert [flags for flags in course.flags(course.pairs) if flags] == []


@pytest.mark.slow
@pytest.mark.skipif(bool(plant.missing()), reason=f"HEEDFUL_DATA has no {' and no '.join(plant.missing())}")
def test_the_exam_on_real_translations():
    run = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "sentinel.py", "--quick"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
