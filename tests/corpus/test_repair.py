"""`heedful check --fix`: the copy is clean, and what belongs together is together."""

import gzip
import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from heedful import config
from heedful.corpus.check import check, examine_corpora
from heedful.corpus.parallel import Shift
from heedful.corpus.repair import REPAIRED_FAULTS, clean_paths, dropped_faults, pair_rows, repair
from heedful.text.normalize import normalize
from support import corpus_faults as plant

Pairs = list[plant.Pair]
CLEAN = plant.sentences(1500)
HELD = plant.sentences(60, seed=2)


def mended(folder: Path, tree: dict) -> dict[str, tuple[int, int, Pairs]]:
    """What --fix writes: name -> (pairs before, pairs after, the pairs)."""
    settings = config.parse_settings({"source": "en", "target": "de"} | tree, root=folder)
    written = {}
    for name, (before, after, paths) in repair(settings, examine_corpora(settings)).items():
        texts = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths]
        pairs = list(zip(*texts, strict=True)) if len(texts) == 2 else [tuple(row.split("\t")) for row in texts[0]]
        assert len(pairs) == after
        written[name] = (before, after, pairs)
    return written


def mended_pairs(folder: Path, pairs: Pairs, **more: object) -> Pairs:
    plant.written(folder, {"train": plant.unzipped(pairs)}, "en", "de")
    return mended(folder, {"data": {"train": [{"files": "train"}]}, **more})["train"][2]


def kinds(folder: Path, name: str, languages: tuple[str, str] = ("en", "de"), **held: object) -> dict[str, int]:
    """What is found in a written copy: kind -> how many."""
    tree = {"source": languages[0], "target": languages[1], "data": {"train": [{"files": name}], **held}}
    found: dict[str, int] = {}
    for finding in check(config.parse_settings(tree, root=folder)).findings:
        found[finding.kind] = found.get(finding.kind, 0) + finding.count
    return found


def test_the_copy_has_nothing_left_to_mend(tmp_path):
    pairs = list(CLEAN)
    spoils = {
        "empty": lambda pair: (pair[0], ""),
        "copy": lambda pair: (pair[0], pair[0]),
        "ratio": lambda pair: (pair[0], pair[1] * 8),
        "long": lambda pair: (pair[0] * 80, pair[1] * 80),
        "wrong_script": lambda pair: ("Просто другое письмо здесь.", pair[1]),
        "mojibake": lambda pair: (pair[0], f"{pair[1]} fÃ¼r"),
        "control": lambda pair: (pair[0].replace(" ", " \x07", 1), pair[1]),
        "invisible": lambda pair: (pair[0], pair[1].replace(" ", " \u200b", 1)),
        "subwords": lambda pair: (pair[0].replace(" ", "@@ "), pair[1]),
        "rejected": lambda pair: (f"{pair[0]}\udcff", pair[1]),
        "swapped": lambda pair: pair[::-1],
        "duplicate": lambda _: CLEAN[0],
        "overlap": lambda _: HELD[0],
    }
    for row, spoil in enumerate(list(spoils.values()) * 3):
        pairs[200 + 20 * row] = spoil(pairs[200 + 20 * row])
    parts = {"train": plant.unzipped(pairs), "test": plant.unzipped(HELD)}
    plant.written(tmp_path, parts, "en", "de")
    held = {"test": [{"files": "test"}]}
    assert set(kinds(tmp_path, "train", **held)) >= set(spoils)
    ((before, after, _),) = mended(tmp_path, {"data": {"train": [{"files": "train"}], **held}}).values()
    # control and invisible characters are taken out, swapped pairs turned round: only the other ten kinds are gone
    assert (before, after) == (1497, 1500 - 3 * 10)
    assert kinds(tmp_path, "train.clean", **held) == {}


def test_text_is_normalized(tmp_path):
    odd = [
        (f"  {source}\u200b", target.replace(" ", "\u00a0", 1).replace("n", "n\u00ad", 1)) for source, target in CLEAN
    ]
    assert mended_pairs(tmp_path, odd) == CLEAN
    assert all(normalize(text) == (text, {}) for pair in CLEAN for text in pair)


def test_swapped_pairs_are_turned_round(tmp_path):
    swapped = [pair[::-1] if row in (300, 700, 900) else pair for row, pair in enumerate(CLEAN)]
    assert mended_pairs(tmp_path, swapped) == CLEAN


@pytest.mark.parametrize("lost", [(700,), (100, 101, 102), (100, 600, 601, 1200)])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("filled", [True, False], ids=["equal counts", "unequal counts"])
def test_lines_are_paired_again(side, lost, filled, tmp_path):
    texts = list(plant.unzipped(CLEAN))
    texts[side] = [text for row, text in enumerate(texts[side]) if row not in lost]
    texts[side] += [HELD[row][side] for row in range(len(lost))] * filled
    plant.written(tmp_path, {"train": tuple(texts)}, "en", "de")
    pairs = mended(tmp_path, {"data": {"train": [{"files": "train"}]}})["train"][2]
    assert set(pairs) < set(CLEAN)
    assert len(pairs) >= 0.98 * (1500 - len(lost))
    assert "shift" not in kinds(tmp_path, "train.clean")


def test_faults_inside_a_shift_are_mended_too(tmp_path):
    source, target = plant.unzipped(CLEAN)
    target = target[:300] + target[301:] + ["Ende."]
    target[800], source[900] = target[800] + " fÃ¼r", source[900] + "\u200b"
    pairs = mended_pairs(tmp_path, list(zip(source, target, strict=True)))
    assert set(pairs) < set(CLEAN)
    assert CLEAN[801] not in pairs  # whose target is garbled
    assert CLEAN[900] in pairs
    assert kinds(tmp_path, "train.clean") == {}


def test_nothing_is_written_where_nothing_can_be_done(tmp_path):
    shuffled = Random(1).sample([target for _, target in CLEAN], len(CLEAN))
    cases = {
        "healthy": plant.unzipped(CLEAN),
        "harmless": plant.unzipped([(f"<b>{source}</b>", target) for source, target in CLEAN]),
        "not_parallel": ([source for source, _ in CLEAN], [*shuffled[:-1], "fÃ¼r"]),
        "guess": (plant.unzipped(CLEAN[:20])[0], plant.unzipped(CLEAN[1:20])[1]),
        "no_pairs": ([], []),
    }
    for name, texts in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        plant.written(folder, {"train": texts}, "en", "de")
        assert mended(folder, {"data": {"train": [{"files": "train"}]}}) == {}
        assert not list(folder.glob("*clean*"))


@pytest.mark.parametrize(
    ("clean", "left"),
    [
        ({}, 1485),
        ({"duplicates": "keep"}, 1490),
        ({"overlap": "keep"}, 1490),
        ({"overlap": "either"}, 1480),
        ({"drop": []}, 1490),
    ],
)
def test_what_is_left_out_is_a_setting(clean, left, tmp_path):
    pairs = list(CLEAN)
    for row in range(5):
        pairs[300 + 20 * row] = CLEAN[row]
        pairs[500 + 20 * row] = HELD[row]
        pairs[700 + 20 * row] = (HELD[10 + row][0], pairs[700 + 20 * row][1])
        pairs[900 + 20 * row] = (pairs[900 + 20 * row][0] + " cafÃ©", pairs[900 + 20 * row][1])
    plant.written(tmp_path, {"train": plant.unzipped(pairs), "test": plant.unzipped(HELD)}, "en", "de")
    data = {"train": [{"files": "train"}], "test": [{"files": "test"}]}
    assert mended(tmp_path, {"data": data, "clean": clean})["train"][:2] == (1500, left)


def test_a_copy_is_written_where_the_settings_ask_for_one(tmp_path):
    pairs = [(HELD[row // 20][0], pair[1]) if row in (300, 400) else pair for row, pair in enumerate(CLEAN)]
    plant.written(tmp_path, {"train": plant.unzipped(pairs), "test": plant.unzipped(HELD)}, "en", "de")
    tree = {"data": {"train": [{"files": "train"}], "test": [{"files": "test"}]}}
    assert mended(tmp_path, tree) == {}
    assert mended(tmp_path, tree | {"clean": {"overlap": "either"}})["train"][:2] == (1500, 1498)


def test_a_pair_of_two_corpora_stays_in_the_first(tmp_path):
    parts = {"train": plant.unzipped(CLEAN[:800]), "test": plant.unzipped(CLEAN[700:])}
    plant.written(tmp_path, parts, "en", "de")
    written = mended(tmp_path, {"data": {"train": [{"files": "train"}, {"files": "test"}]}})
    assert written == {"train2": (800, 700, CLEAN[800:])}


FORMATS = {
    "train.tsv": lambda pairs: "".join(f"{source}\t{target}\n" for source, target in pairs),
    "train.jsonl": lambda pairs: "".join(f"{json.dumps({'source': one, 'target': two})}\n" for one, two in pairs),
    "train.tmx": lambda pairs: (
        "<tmx><body>"
        + "".join(
            f'<tu><tuv lang="en"><seg>{one}</seg></tuv><tuv lang="de"><seg>{two}</seg></tuv></tu>' for one, two in pairs
        )
        + "</body></tmx>"
    ),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_one_file_becomes_a_tsv(name, packed, tmp_path):
    data = FORMATS[name]([*CLEAN, CLEAN[3]]).encode()
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    written = mended(tmp_path, {"data": {"train": [{"files": path.name}]}})["train"]
    assert written == (1501, 1500, CLEAN)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([path.name, "train.clean.tsv"])


def test_names():
    assert clean_paths((Path("a/train.en.gz"), Path("a/train.de.zst")), "en", "de") == (
        Path("a/train.clean.en"),
        Path("a/train.clean.de"),
    )
    assert clean_paths((Path("a/all.parquet"),), "en", "de") == (Path("a/all.clean.tsv"),)


def joined(line, others, *found) -> dict[int, int]:
    """Source line -> target line."""
    line, others = np.array(line), np.array(others)
    left, right = pair_rows(line, others, found)
    assert len(set(right.tolist())) == len(right)  # a target line is used once
    return dict(zip(line[left].tolist(), others[right].tolist(), strict=True))


def test_lines_are_rejoined_by_their_lag():
    rows = range(40)
    straight = {row: row for row in rows if row < 8 or row >= 27}
    lagging = {row: row + 3 for row in range(12, 18)}
    assert joined(rows, rows, Shift(10, 20, 3, 9.0), Shift(20, 25, None, 9.0)) == straight | lagging
    assert joined(range(10), range(8), Shift(4, 10, -2, 9.0)) == {0: 0, 1: 1, 6: 4, 7: 5, 8: 6, 9: 7}
    assert joined(range(6), range(6), Shift(0, 3, 3, 9.0)) == {0: 3, 5: 5}
    assert joined(range(6), range(6)) == {row: row for row in range(6)}


def test_a_rejected_line_takes_its_true_partner_with_it():
    rows = [row for row in range(20) if row != 10]  # line 10 could not be read, on whichever side
    assert joined(rows, rows, Shift(0, 19, 1, 9.0)) == {row: row + 1 for row in range(19) if row not in (9, 10)}


@pytest.mark.skipif(bool(plant.missing()), reason=f"HEEDFUL_DATA has no {' and no '.join(plant.missing())}")
@pytest.mark.parametrize("name", plant.CORPORA)
def test_real_text_with_a_lost_line_and_many_faults(name, tmp_path):
    given = plant.material(name, 6000)
    planted = plant.plant(given, each=5, seed=2)
    source, target = plant.unzipped(planted.pairs)
    target = [*target[:2500], *target[2501:], given.test[0][1]]
    plant.written(tmp_path, {"train": (source, target)}, given.source, given.target)
    tree = {"source": given.source, "target": given.target, "data": {"train": [{"files": "train"}]}}
    before, after, pairs = mended(tmp_path, tree)["train"]
    good = {tuple(normalize(text)[0] for text in pair) for pair in (*given.pairs, *planted.pairs)}
    good |= {pair[::-1] for pair in good}
    assert after > 0.95 * (before - 5 * len(plant.LINE_FAULTS))
    assert [pair for pair in pairs if pair not in good] == []
    left = kinds(tmp_path, "train.clean", (given.source, given.target))
    promised = REPAIRED_FAULTS | dropped_faults(config.parse_settings(tree))
    assert set(left) & promised <= {
        "wrong_language",
        "untranslated",
        "truncated",
    }  # of which fewer lines are another standard
    assert left.get("wrong_language", 0) + left.get("untranslated", 0) <= 5
