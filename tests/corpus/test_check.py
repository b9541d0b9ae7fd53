"""The doctor: every kind of fault is found, named and weighed, and healthy corpora are left in peace."""

import csv
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import polars
import pytest

from heedful.corpus import completeness
from heedful.corpus.check import check
from heedful.corpus.completeness import differing_numbers
from heedful.corpus.findings import ALL_RULES, CORPUS_RULES, LEVELS, Report
from heedful.corpus.languages import sort_lines_by_language
from heedful.corpus.parallel import (
    Evidence,
    best_path,
    find_global_lags,
    find_shifts,
    find_split,
    find_stretches,
    index_words,
)
from heedful.corpus.rules import RULES, Profile, apply_rules, make_profile
from heedful.text.small_words import SMALL_WORDS
from support import corpus_faults as plant
from support.rule_reference import REFERENCE, reference

FRENCH = SMALL_WORDS["fr"].split()[:25]


def examined(folder: Path, train: list[plant.Pair], **held: list[plant.Pair]) -> Report:
    parts = {"train": train, **held}
    return check(plant.written(folder, {name: plant.unzipped(pairs) for name, pairs in parts.items()}, "en", "de"))


def found(report: Report, kind: str, corpus: str = "train") -> list[int]:
    """Every line that findings of a kind name."""
    every = [finding for finding in report.findings if finding.kind == kind and finding.corpus == corpus]
    return sorted({int(line) for finding in every for line in finding.lines})


# ---------------------------------------------------------------------------------------------------- rules of lines

GOOD = ("A man in a red shirt is standing there.", "Dort steht ein Mann in einem roten Hemd.")
BROKEN: dict[str, plant.Pair] = {
    "empty": (GOOD[0], " \t"),
    "copy": (GOOD[0], GOOD[0].upper()),
    "long": ("word " * 201, "Wort " * 201),
    "ratio": (GOOD[0], "Ja."),
    "wrong_script": ("Мужчина в красной рубашке стоит там.", GOOD[1]),
    "mojibake": (GOOD[0], "Dort stehen MÃ¤nner in roten Hemden."),
    "control": (GOOD[0], "Dort steht\x07 ein Mann in einem roten Hemd."),
    "invisible": ("A man in a red\u200b shirt is standing there.", GOOD[1]),
    "subwords": ("A man in a red sh@@ irt is stan@@ ding there.", GOOD[1]),
    "tokenized": ("A man in a red shirt , it 's true , is standing there .", GOOD[1]),
    "markup": ("A man in a <b>red</b> shirt is standing there.", GOOD[1]),
}
LATIN = Profile(("Latin",), ("Latin",), 1.0371)


def judged(pairs: list[plant.Pair], profile: Profile) -> dict[str, list[bool]]:
    """Rule -> whether each pair breaks it."""
    source, target = plant.unzipped(pairs)
    flags = apply_rules(polars.DataFrame({"source": source, "target": target}), profile)
    return {name: (left | right).tolist() for name, (left, right) in flags.items()}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_an_example_and_spares_a_good_pair(name):
    assert judged([BROKEN[name], GOOD], LATIN)[name] == [True, False]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_whose_fault_it_is(name):
    left, right = apply_rules(polars.DataFrame([BROKEN[name]], schema=["source", "target"], orient="row"), LATIN)[name]
    blamed = [bool(left[0]), bool(right[0])]
    changed = [one != other for one, other in zip(BROKEN[name], GOOD, strict=True)]
    assert blamed == ([True, True] if RULES[name].pair else changed)


FRAGMENTS = [
    *"abXYéüßñàçÃÂÄÅÎÐÑØÙÖ×ð†€•¤©®°¶Ÿ“”…»« \xa0¢ДВЕГРСрспвЂёїі日カあ한αאع1.,;'@&<>/#▁_",
    *"\u3000\x07\x85\x1c\t\u2028\u200b\xad\ufffd\ufeff",
    *(" ", "  ", " . ", " ,", "@@ ", "@@", "@-@", "&apos;", " 's ", "<b>", "&amp;"),
    *("â€™", "Ã©", "СЂРµ", "fГјr", "words "),
]


def test_every_rule_is_what_plain_python_says():
    draw = Random(3)
    source = ["".join(draw.choices(FRAGMENTS, k=draw.choice((0, 1, 2, 3, 5, 10, 40, 250)))) for _ in range(3000)]
    copies = [text.swapcase() + draw.choice(("", " ", "\x1c")) for text in source]
    target = [copy if draw.random() < 0.2 else other for copy, other in zip(copies, source[::-1], strict=True)]
    profile = Profile(("Latin",), ("Latin", "Cyrillic"), 1.0371, max_words=30, max_length_ratio=2.9)
    expected = reference(source, target, profile)
    assert judged(list(zip(source, target, strict=True)), profile) == expected
    assert all(0.02 < np.mean(flags) < 0.98 for flags in expected.values())  # else it would show nothing
    assert REFERENCE.keys() == RULES.keys()


def test_good_typography_is_not_garbled():
    french = ["« Voilà un café ! »", "«\xa0Il est né\xa0»", "Elle a dit : « olé… »", "“Está…”", "NESCAFÉ®\xa0»"]
    assert not any(judged([(text, text[::-1]) for text in french], LATIN)["mojibake"])


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp1251"])
@pytest.mark.parametrize("text", ["Für Männer", "É só você, não", "Привет, мир", "“Oui”, dit-il", "ça coûte 5 €"])
def test_text_read_in_the_wrong_encoding_is_garbled(text, encoding):
    assert judged([(plant.read_as(encoding)(text), GOOD[1])], LATIN)["mojibake"] == [True]


def test_the_profile_of_a_corpus():
    table = polars.DataFrame({"source": ["ab cd"] * 50, "target": ["слово " * 3] * 49 + ["words"]})
    assert make_profile(table) == Profile(("Latin",), ("Cyrillic",), 22 / 9)
    kana = polars.DataFrame({"source": ["これは本です"], "target": ["x"]})
    assert make_profile(kana).source_scripts == ("Han", "Hiragana", "Katakana")


# --------------------------------------------------------------------------------------------------- rules of corpora


def with_rows(pairs: list[plant.Pair], rows: range, change: Callable[[plant.Pair], plant.Pair]) -> list[plant.Pair]:
    return [change(pair) if row in rows else pair for row, pair in enumerate(pairs)]


CLEAN = plant.sentences(1500)
HELD = plant.sentences(100, seed=2)
SOME = range(600, 720, 10)
TURNS = itertools.cycle(FRENCH)
LATER = plant.sentences(1500, seed=5)
AT_THE_END = plant.shifted([target for _, target in CLEAN], plant.Stretch(700, 800, 1), ["Ein anderer Satz."])
ILL: dict[str, tuple[list[plant.Pair], str]] = {  # pairs, and the corpus in which the fault is found
    "no_pairs": ([], "train"),
    "rejected": (with_rows(CLEAN, SOME, lambda pair: (pair[0], pair[1] + "\udcff")), "train"),
    "shift": ([(pair[0], target) for pair, target in zip(CLEAN, AT_THE_END, strict=True)], "train"),
    "not_parallel": ([(one[0], other[1]) for one, other in zip(CLEAN, LATER, strict=True)], "train"),
    "language": ([(target, source) for source, target in CLEAN], "train"),
    "swapped": (with_rows(CLEAN, SOME, lambda pair: pair[::-1]), "train"),
    "untranslated": (with_rows(CLEAN, SOME, lambda pair: (pair[0], "So " + pair[0])), "train"),
    "wrong_language": (with_rows(CLEAN, SOME, lambda pair: (pair[0], " ".join(itertools.islice(TURNS, 6)))), "train"),
    "numbers": (with_rows(CLEAN, SOME, lambda pair: (f"{pair[0]} 1,234.50", f"{pair[1]} 1.234,60")), "train"),
    "truncated": (with_rows(CLEAN, SOME, lambda pair: (pair[0], pair[1][: len(pair[1]) // 2])), "train"),
    "line_breaks": (CLEAN, "train"),
    "duplicate": (with_rows(CLEAN, SOME, lambda pair: plant.shouted(CLEAN[0])), "train"),
    "overlap": (with_rows(CLEAN, SOME, lambda pair: plant.shouted(HELD[0])), "train"),
    "overlap_side": (with_rows(CLEAN, SOME, lambda pair: (HELD[0][0].upper(), pair[1])), "train"),
    "lower_cased": ([(source, target.lower()) for source, target in CLEAN], "train"),
    "fragments": ([(source, f"{target} {row:09}") for row, (source, target) in enumerate(CLEAN)], "train"),
    "unequal": (CLEAN[:-1], "train"),
}
SPOILED_LINES = [
    kind
    for kind in ILL
    if kind != "line_breaks" and ILL[kind][0][:600] == CLEAN[:600] and ILL[kind][0][720:] == CLEAN[720:]
]


def report_of(kind: str, folder: Path) -> Report:
    pairs, _ = ILL[kind]
    if kind == "unequal":
        source, target = plant.unzipped(CLEAN)
        return check(plant.written(folder, {"train": (source, target[:700] + target[701:])}, "en", "de"))
    if kind == "line_breaks":
        return check(table_settings(folder, with_rows(CLEAN, SOME, lambda pair: (f"Yes.\n{pair[0]}", pair[1]))))
    return examined(folder, pairs, validation=HELD)


def table_settings(folder: Path, pairs: list[plant.Pair]) -> plant.config.Settings:
    with (folder / "all.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(pairs)
    data = {"train": [{"files": str(folder / "all.csv")}]}
    return plant.config.parse_settings({"source": "en", "target": "de", "data": data, "tokenizer": {"kind": "words"}})


def test_a_healthy_corpus_is_healthy(tmp_path):
    report = examined(tmp_path, CLEAN, validation=HELD, test=plant.sentences(100, seed=3))
    assert report.pairs == {"train": 1500, "validation": 100, "test": 100}
    assert [finding.kind for finding in report.findings] == []
    assert not report.has_errors


@pytest.mark.parametrize("kind", CORPUS_RULES)
def test_every_rule_of_corpora_has_an_example(kind, tmp_path):
    report = report_of(kind, tmp_path)
    assert kind in {finding.kind for finding in report.findings if finding.corpus == ILL[kind][1]}
    assert set(SPOILED_LINES) >= {"rejected", "swapped", "untranslated", "wrong_language", "duplicate", "overlap"}


@pytest.mark.parametrize("kind", SPOILED_LINES)
def test_the_lines_are_named(kind, tmp_path):
    assert found(report_of(kind, tmp_path), kind) == [row + 1 for row in SOME]


@pytest.mark.parametrize("kind", ILL)
def test_an_error_is_what_one_must_not_train_on(kind, tmp_path):
    report = report_of(kind, tmp_path)
    serious = {"no_pairs", "shift", "not_parallel", "language", "overlap", "lower_cased", "unequal"}
    assert report.has_errors == (kind in serious)


def test_a_finding_says_what_where_why_and_what_to_do(tmp_path):
    report = report_of("rejected", tmp_path)
    (finding,) = [one for one in report.findings if one.kind == "rejected"]
    assert (finding.level, finding.corpus, finding.count) == ("warning", "train", 12)
    assert finding.file == str(tmp_path / "train.de")  # the side that cannot be read
    assert finding.share == pytest.approx(12 / 1500)
    assert finding.detail.startswith("not UTF-8 at byte")
    assert finding.rule is ALL_RULES["rejected"]
    told = finding.to_dict()
    assert told["lines"] == list(range(601, 721, 10))
    assert all(told[word] for word in ("what", "cause", "fix", "sample"))


def test_a_report_is_json(tmp_path):
    report = report_of("shift", tmp_path)
    told = json.loads(json.dumps(report.to_dict()))
    assert told["errors"] is True
    assert told["pairs"] == {"train": 1500, "validation": 100}
    (shift,) = [finding for finding in told["findings"] if finding["kind"] == "shift"]
    assert shift["count"] == 800
    assert len(shift["lines"]) == 100
    assert set(told["tokens"]) == {"source", "target", "unknown", "vocabulary"}


def test_the_worst_comes_first(tmp_path):
    pairs = with_rows(with_rows(CLEAN, range(600, 1000), lambda pair: ("", pair[1])), SOME, lambda pair: pair[::-1])
    pairs = with_rows(pairs, range(1100, 1104), lambda pair: (f"<b>{pair[0]}</b>", pair[1]))
    ranked = [(LEVELS.index(finding.level), -finding.share) for finding in examined(tmp_path, pairs).findings]
    assert ranked == sorted(ranked)
    assert len({level for level, _ in ranked}) == 3


@pytest.mark.parametrize(("rows", "level"), [(25, "warning"), (45, "error")])
def test_what_many_pairs_have_is_an_error(rows, level, tmp_path):
    """mojibake: an alarm from 2 % of the pairs on"""
    pairs = with_rows(CLEAN, range(100, 100 + rows), lambda pair: (pair[0], pair[1] + " fÃ¼r"))
    assert [finding.level for finding in examined(tmp_path, pairs).findings if finding.kind == "mojibake"] == [level]


def test_what_few_lines_have_may_not_be_worth_a_word(tmp_path):
    """tokenized: a space before a comma here and there is only a typing error"""
    few, many = (with_rows(CLEAN, range(rows), lambda pair: (f"{pair[0]} , too", pair[1])) for rows in (20, 60))
    assert found(examined(tmp_path, few), "tokenized") == []
    assert len(found(examined(tmp_path, many), "tokenized")) == 60


def test_one_file_for_both_sides(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in CLEAN) + "no tab\n", encoding="utf-8")
    settings = plant.config.parse_settings({"source": "en", "target": "de", "data": {"train": [{"files": str(path)}]}})
    report = check(settings)
    assert found(report, "rejected") == [1501]
    assert [finding.file for finding in report.findings] == [str(path)]


# ------------------------------------------------------------------------------------------------------------- skeptics

ODD: dict[str, list[plant.Pair]] = {
    "one pair": CLEAN[:1],
    "thirty pairs": CLEAN[:30],
    "three hundred pairs": CLEAN[:300],
    "one pair again and again": CLEAN[:1] * 500,
    "two pairs again and again": CLEAN[:2] * 500,
    "numbers": [(str(row), str(row * 7)) for row in range(500)],
    "names that occur once": [(f"Kim{row:04}", f"Ким{row * 31:05}") for row in range(1000)],
    "names and tags": [(f"{noun}{row % 97} V O S", f"{noun}en{row % 97}") for row, noun in enumerate(plant.NOUNS * 20)],
    "digits reversed": [(f"{row // 100} {row % 10}", f"{row % 10} {row // 100}") for row in range(2000)],
    "sorted by length": sorted(CLEAN, key=lambda pair: len(pair[0])),
    "one part unlike the rest": CLEAN + [(f"{one} {one}", two[: len(two) // 2]) for one, two in LATER[:300]],
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_corpus_is_no_error(name, tmp_path):
    report = examined(tmp_path, ODD[name])
    assert [finding for finding in report.findings if finding.level == "error"] == []


@pytest.mark.parametrize(
    ("pairs", "kinds"),
    [
        ([("", "")] * 300, {"empty"}),
        ([(source, source) for source, _ in CLEAN], {"copy", "language"}),
        ([*CLEAN[:1], ("Yes.", "Yes.")], {"copy"}),
    ],
)
def test_a_hopeless_corpus_is_an_error_and_no_crash(pairs, kinds, tmp_path):
    assert {one.kind for one in examined(tmp_path, pairs).findings if one.level == "error"} == kinds


# ----------------------------------------------------------------------------------------------------- parallel or not


@pytest.mark.parametrize("lag", [1, -1, 3, -12, 40])
@pytest.mark.parametrize(("begin", "length"), [(400, 100), (900, 600), (150, 1350)])
def test_a_shift_begins_where_it_begins(begin, length, lag, tmp_path):
    filler = [target for _, target in LATER[:40]]
    target = plant.shifted([target for _, target in CLEAN], plant.Stretch(begin, length, lag), filler)
    report = examined(tmp_path, [(pair[0], other) for pair, other in zip(CLEAN, target, strict=True)])
    lines = found(report, "shift")
    assert abs(lines[0] - 1 - begin) <= 5
    assert abs(lines[-1] - begin - length) <= 5
    (finding,) = [finding for finding in report.findings if finding.kind == "shift"]
    assert f"source line n belongs to target line n{lag:+d}" in finding.detail


def test_lost_lines_add_up():
    source, target = plant.unzipped(CLEAN)
    kept = [row for row in range(1500) if row not in (300, 301, 800, 1200)]
    spoiled = [target[row] for row in kept] + ["Ende."] * 4
    lags = [shift.lag for shift in find_shifts(Evidence(polars.Series(source), polars.Series(spoiled))) if shift.lag]
    assert lags == [-2, -3, -4]


def test_many_lost_lines_add_up_to_large_lags():
    source, target = plant.unzipped(plant.sentences(4000))
    spoiled = [text for row, text in enumerate(target) if row % 80 != 79]
    evidence = Evidence(polars.Series(source[: len(spoiled)]), polars.Series(spoiled))
    assert [shift.lag for shift in find_shifts(evidence)] == [-lost for lost in range(1, 50)]


def test_the_lag_of_whole_files_is_found_in_periodic_ones():
    draw = np.random.default_rng(1)
    lengths = (np.sin(np.arange(3100) / 5) + 0.2 * draw.normal(size=3100)).astype(np.float32)
    left, right = lengths[100:], lengths[:3000] + 0.05 * draw.normal(size=3000).astype(np.float32)
    assert find_global_lags(left, right).tolist() == [100]
    assert find_global_lags(left, draw.permutation(right)).tolist() == []


def test_unknown_words_are_told_by_their_spelling():
    draw = Random(1)

    def made_up(letters: str, number: int) -> list[str]:
        return ["".join(draw.choices(letters, k=7)) for _ in range(number)]

    usual = {letters: made_up(letters, 30) for letters in ("bcd", "aei")}
    texts = [
        [" ".join(draw.sample(known, 3) + made_up(letters, 3)) for _ in range(400)] for letters, known in usual.items()
    ]
    texts[0][7], texts[1][7] = (" ".join(made_up(letters, 5)) for letters in reversed(usual))
    swapped, _, _ = sort_lines_by_language(*(index_words(polars.Series(text)) for text in texts))
    assert np.flatnonzero(swapped).tolist() == [7]


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.45])
def test_swapped_pairs_are_called_swapped_however_many_there_are(share, tmp_path):
    """They blur what is typical of each side, until they are turned round."""
    draw = Random(4)
    rows = set(draw.sample(range(len(CLEAN)), int(share * len(CLEAN))))
    report = examined(tmp_path, [pair[::-1] if row in rows else pair for row, pair in enumerate(CLEAN)])
    assert len(rows - {line - 1 for line in found(report, "swapped")}) <= 0.05 * len(rows)
    assert not {line - 1 for line in found(report, "swapped")} - rows
    assert found(report, "untranslated") == []


def test_sides_in_the_same_language_are_not_pulled_apart():
    texts = [polars.Series([source for source, _ in plant.sentences(1500, seed)]) for seed in (1, 2)]
    assert not any(flags.any() for flags in sort_lines_by_language(*map(index_words, texts)))


@pytest.mark.parametrize(
    ("pair", "differs"),
    [
        (("It costs 1,200 euros.", "Es kostet 1.200 Euro."), False),
        (("It costs 1,200 euros.", "Es kostet 1.300 Euro."), True),
        (("It costs a lot.", "Es kostet 1.300 Euro."), True),
        (("It costs 1,300 euros.", "Es kostet viel."), True),
        (("Three of 25 came.", "3 von fünfundzwanzig kamen."), False),
        (("It took an hour.", "１時間かかりました。"), False),
        (("It took 2 hours.", "１時間かかりました。"), True),
        (("In 007 and 7", "In 7 und 007"), False),
        (("No digits", "Keine Ziffern"), False),
    ],
)
def test_differing_numbers(pair, differs):
    table = polars.DataFrame([pair, GOOD], schema=["source", "target"], orient="row")
    assert differing_numbers(table).tolist() == [differs, False]


def test_only_a_sample_of_very_many_numbers_is_compared(monkeypatch):
    monkeypatch.setattr(completeness, "MAX_COMPARED_PAIRS", 10)
    table = polars.DataFrame({"source": [f"a {row}" for row in range(95)], "target": ["b 1000"] * 95})
    assert 9 <= differing_numbers(table).sum() <= 10


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("rows", [range(100, 1400, 100), range(100, 1400, 7)])
def test_truncated_lines_are_found_on_either_side_however_many_there_are(side, rows, tmp_path):
    pairs = [list(pair) for pair in CLEAN]
    for row in rows:
        words = pairs[row][side].split()
        pairs[row][side] = " ".join(words[: len(words) // 2])
    report = examined(tmp_path, [(source, target) for source, target in pairs])
    (finding,) = (finding for finding in report.findings if finding.kind == "truncated")
    assert finding.file.endswith((".en", ".de")[side])
    lines = {int(line) - 1 for line in finding.lines}
    assert len(lines & set(rows)) > 0.9 * len(rows)
    assert len(lines - set(rows)) < 0.005 * len(pairs)


def test_cut_lengths_are_evidence_and_usual_ones_are_not():
    draw, rows = np.random.default_rng(1), 1500
    ratio = draw.normal(0.1, 0.05, rows)
    ratio[:20] += np.log(0.5)
    nats = completeness.length_nats(ratio, np.zeros(rows, np.int64), np.append(np.zeros(20), np.ones(rows - 20)))
    assert nats[:20].min() > 1
    assert (nats[20:] > 1).mean() < 0.02


@pytest.mark.parametrize("rows", [300, 1500])
def test_sides_that_do_not_belong_together_have_no_support(rows):
    sources, targets, others = (
        polars.Series(texts) for texts in (*plant.unzipped(CLEAN[:rows]), plant.unzipped(LATER[:rows])[1])
    )
    assert Evidence(sources, targets).support_nats > 1
    assert abs(Evidence(sources, others).support_nats) < 0.25


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(("place", "number"), [(0, 1), (40, 1), (700, 1), (700, 3), (1400, 1)])
def test_files_of_unequal_counts_part_where_a_line_was_lost(side, place, number, tmp_path):
    texts = dict(zip(("source", "target"), plant.unzipped(CLEAN), strict=True))
    texts[side] = texts[side][:place] + texts[side][place + number :]
    report = check(plant.written(tmp_path, {"train": (texts["source"], texts["target"])}, "en", "de"))
    (line,) = found(report, "unequal")
    assert abs(line - place - 1) <= 2
    assert report.has_errors


@pytest.mark.parametrize(
    ("rows", "others", "told"),
    [
        (1500, 1480, "1,500 and 1,480; lines are missing at the end of one file"),
        (0, 10, "0 and 10; one of them is empty"),
        (1, 2, "1 and 2; they diverge near line 1 (uncertain, because there is little evidence)"),
    ],
)
def test_what_is_said_of_files_of_unequal_counts(rows, others, told, tmp_path):
    source, target = plant.unzipped(CLEAN)
    report = check(plant.written(tmp_path, {"train": (source[:rows], target[:others])}, "en", "de"))
    assert [(finding.kind, finding.detail) for finding in report.findings] == [("unequal", told)]


def test_parting_is_the_best_single_place():
    source, target = (polars.Series(texts) for texts in plant.unzipped(CLEAN[:120]))
    evidence = Evidence(source, target.head(60).append(target.tail(59)))
    straight, lagging = evidence.evidence_against_lag(0), evidence.evidence_against_lag(-1)
    totals = [straight[:place].sum() + lagging[place:].sum() for place in range(121)]
    found_place = find_split(evidence).begin
    assert totals[found_place] == pytest.approx(min(totals), abs=1e-3)
    assert abs(found_place - 60) <= 2


def test_the_best_path_is_the_best_of_all_paths():
    draw = np.random.default_rng(4)
    for switch in (0.3, 1.0, 2.5):
        scores = draw.normal(size=(7, 3)).astype(np.float32)

        def total(path, scores=scores, switch=switch):
            return sum(scores[row, state] for row, state in enumerate(path)) - switch * sum(
                one != other for one, other in itertools.pairwise((0, *path))
            )

        best = max(total(path) for path in itertools.product(range(3), repeat=7))
        assert total(best_path(scores, switch)) == pytest.approx(best, abs=1e-5)


def test_stretches_are_where_the_evidence_rises():
    evidence = np.full(100, -1.0, np.float32)
    evidence[20:30], evidence[60:90], evidence[70] = 2.0, 1.0, -3.0
    assert find_stretches(evidence, 15) == [(20, 30, 20.0), (60, 90, 26.0)]
    assert find_stretches(evidence, 22) == [(60, 90, 26.0)]
    assert find_stretches(np.zeros(0, np.float32), 1) == []


# ------------------------------------------------------------------------------------------------------------ real text

real = pytest.mark.skipif(bool(plant.missing()), reason=f"HEEDFUL_DATA has no {' and no '.join(plant.missing())}")


@real
@pytest.mark.parametrize("name", plant.CORPORA)
def test_faults_planted_into_real_text_are_found(name, tmp_path):
    given = plant.material(name, 6000)
    planted = plant.plant(given, each=6, seed=1)
    parts = {"train": planted.pairs, "validation": given.validation, "test": given.test}
    texts = {split: plant.unzipped(pairs) for split, pairs in parts.items()}
    report = check(plant.written(tmp_path, texts, given.source, given.target))
    missed = []
    for name, lines in planted.where.items():
        fault = plant.LINE_FAULTS[name]
        ending = f".{getattr(given, fault.side)}" if fault.side else ""
        named = [
            set(finding.lines.tolist())
            for finding in report.findings
            if finding.kind in fault.kinds and finding.corpus == "train" and finding.file.endswith(ending)
        ]
        missed += [(name, line) for line in lines if line not in set().union(*named)]
    statistical = {name for name, fault in plant.LINE_FAULTS.items() if fault.statistical}
    assert [one for one in missed if one[0] not in statistical] == []
    assert len(missed) <= 3


@real
@pytest.mark.parametrize("name", plant.CORPORA)
def test_real_corpora_raise_no_alarm(name, tmp_path):
    given = replace(plant.material(name, 10_000), validation=(), test=())
    report = check(plant.written(tmp_path, {"train": plant.unzipped(given.pairs)}, given.source, given.target))
    assert [finding for finding in report.findings if finding.level == "error"] == []


@pytest.mark.skipif(not (plant.DATA / "scan").is_dir(), reason="HEEDFUL_DATA has no scan")
def test_a_formal_language_in_the_order_of_its_grammar_is_no_error(tmp_path):
    pairs = [line.removeprefix("IN: ").split(" OUT: ") for line in plant.lines("scan/tasks_test_length.txt.gz")]
    assert not examined(tmp_path, [(source, target) for source, target in pairs]).has_errors


@real
@pytest.mark.parametrize("rows", [150, 5000])
def test_tokenized_japanese_is_noticed_but_no_error(rows, tmp_path):
    texts = tuple(plant.lines(f"small-parallel-enja/train.{code}.gz")[:rows] for code in ("en", "ja"))
    report = check(plant.written(tmp_path, {"train": texts}, "en", "ja"))
    assert not report.has_errors
    assert len([finding for finding in report.findings if finding.kind == "tokenized"]) == 2
    assert "wrong_script" not in {finding.kind for finding in report.findings}


def test_the_rules_judge_many_pairs_at_once():
    """benchmarks/corpus.py measures it; here only that nobody has written a loop over rows."""
    source = [f"A man sees the old house number {number}." for number in range(20_000)]
    table = polars.DataFrame({"source": source, "target": source})
    profile = make_profile(table)
    times = []
    for judge in (lambda: apply_rules(table, profile), lambda: reference(source, source, profile)):
        begin = time.perf_counter()
        judge()
        times.append(time.perf_counter() - begin)
    assert times[1] > 3 * times[0]
