"""`heedful check` of pictures with captions and of text alone: planted faults are found, and good corpora have none."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.config import Settings, parse_settings
from heedful.corpus.check import check
from heedful.corpus.findings import PICTURE_RULES, Report
from heedful.errors import ConfigError
from support.corpus_faults import DATA, lines, sentences

NUM_TRAIN, NUM_TEST = 40, 10
CAPTIONS = [source for source, _ in sentences(NUM_TRAIN + NUM_TEST)]
EMOJI = DATA / "emoji-captions"


def random_picture(seed: int, size: tuple[int, int] = (40, 48)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def write_captions(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text("".join(f"{picture}\t{caption}\n" for picture, caption in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path) -> Path:
    """train/captions.tsv and test/captions.tsv, with a picture each per line; numbers of names and lines agree."""
    for split, numbers in (("train", range(NUM_TRAIN)), ("test", range(NUM_TRAIN, NUM_TRAIN + NUM_TEST))):
        (tmp_path / split).mkdir()
        rows = []
        for row, number in enumerate(numbers, 1):
            random_picture(number).save(tmp_path / split / f"{row}.png")
            rows.append((f"{row}.png", CAPTIONS[number]))
        write_captions(tmp_path / split / "captions.tsv", rows)
    return tmp_path


def image_settings(folder: Path, *, test: bool = True, **options: object) -> Settings:
    data = {split: [{"files": [str(folder / split)]}] for split in (("train", "test") if test else ("train",))}
    tree = {"target": "en", "data": data, "input": {"kind": "image", **options}, "tokenizer": {"kind": "words"}}
    return parse_settings(tree)


def kinds(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings}


def change_line(folder: Path, line: int, picture: str | None = None, caption: str | None = None) -> None:
    path = folder / "train" / "captions.tsv"
    rows = [row.split("\t") for row in path.read_text(encoding="utf-8").splitlines()]
    rows[line - 1] = [picture or rows[line - 1][0], rows[line - 1][1] if caption is None else caption]
    write_captions(path, [(left, right) for left, right in rows])


def truncate(folder: Path) -> None:
    path = folder / "train" / "7.png"
    path.write_bytes(path.read_bytes()[:200])


def copy_as_bmp(folder: Path) -> None:
    Image.open(folder / "train" / "2.png").save(folder / "train" / "copy.bmp")
    change_line(folder, 7, picture="copy.bmp")


def invisible(folder: Path) -> None:
    Image.new("RGBA", (50, 30), (200, 10, 10, 0)).save(folder / "train" / "7.png")


# kind -> how it is planted into line 7 of the training part; what the finding says
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing_picture": (lambda folder: (folder / "train" / "7.png").unlink(), "there is no such file"),
    "unreadable_picture": (truncate, "damaged or incomplete"),
    "one_color": (invisible, ""),
    "small_picture": (lambda folder: random_picture(99, (12, 15)).save(folder / "train" / "7.png"), "15 x 12 pixels"),
    "narrow_picture": (
        lambda folder: random_picture(99, (40, 400)).save(folder / "train" / "7.png"),
        "400 x 40 pixels",
    ),
    "duplicate_picture": (copy_as_bmp, "line 7 has the picture of line 2 of captions.tsv"),
    "picture_overlap": (
        lambda folder: Image.open(folder / "test" / "3.png").save(folder / "train" / "7.png"),
        "line 7 has the picture of line 3 of captions.tsv",
    ),
}


def test_good_pictures_have_no_findings(folder):
    report = check(image_settings(folder))
    assert report.pairs == {"train": NUM_TRAIN, "test": NUM_TEST}
    assert report.findings == ()
    assert {"ratio", "copy", "not_parallel", "unequal"} <= report.unchecked
    assert not {"picture_overlap", "unreadable_picture"} & report.unchecked
    assert "picture_overlap" in check(image_settings(folder, test=False)).unchecked


@pytest.mark.parametrize("kind", PICTURE_RULES)
def test_every_fault_of_a_picture_is_found_with_its_line(kind, folder):
    plant, detail = FAULTS[kind]
    plant(folder)
    report = check(image_settings(folder))
    (finding,) = report.findings
    assert (finding.kind, finding.lines.tolist(), finding.corpus) == (kind, [7], "train")
    assert detail in finding.detail
    assert finding.file == str(folder / "train" / "captions.tsv")
    assert report.has_errors == (kind == "picture_overlap")
    if not kind.startswith(("duplicate", "picture")):
        assert finding.sample == "7.png"


@pytest.mark.parametrize("kind", ["missing_picture", "unreadable_picture"])
def test_an_unreadable_picture_in_test_is_an_error_and_in_training_only_many_are(kind, folder):
    def damage(path: Path) -> None:
        path.unlink() if kind == "missing_picture" else path.write_bytes(b"<html>")

    for number in (1, 2, 3):
        assert not check(image_settings(folder)).has_errors
        damage(folder / "train" / f"{number}.png")
    assert check(image_settings(folder)).has_errors  # 3 of 40 are more than 5 %
    for number in (1, 2, 3):
        random_picture(number + 200).save(folder / "train" / f"{number}.png")
    damage(folder / "test" / "1.png")
    (finding,) = check(image_settings(folder)).findings
    assert (finding.kind, finding.level, finding.corpus) == (kind, "error", "test")


def test_rules_of_text_apply_to_captions_alone(folder):
    change_line(folder, 3, caption="A dog\u200b")
    change_line(folder, 4, caption=" ")
    change_line(folder, 5, caption="Ein M\u00c3\u00a4dchen")
    random_picture(500).save(folder / "train" / "a\u200b &amp; <b>Ã¤.png")
    change_line(folder, 6, picture="a\u200b &amp; <b>Ã¤.png")
    findings = {finding.kind: finding.lines.tolist() for finding in check(image_settings(folder)).findings}
    assert findings == {"invisible": [3], "empty": [4], "mojibake": [5]}


def test_several_captions_of_a_picture_are_no_duplicates_but_repeated_pairs_are(folder):
    change_line(folder, 8, picture="7.png")
    assert not kinds(check(image_settings(folder)))
    change_line(folder, 9, picture="7.png", caption=CAPTIONS[7].upper())
    (finding,) = check(image_settings(folder)).findings
    assert (finding.kind, finding.lines.tolist()) == ("duplicate", [9])


def test_pictures_of_one_color_are_no_duplicates(folder):
    for number, color in enumerate(("white", "white", "black"), 1):
        Image.new("RGB", (40, 40), color).save(folder / "train" / f"{number}.png")
    Image.new("RGB", (40, 40), "white").save(folder / "test" / "1.png")
    report = check(image_settings(folder))
    assert kinds(report) == {"one_color"}
    assert sorted(finding.lines.tolist() for finding in report.findings) == [[1], [1, 2, 3]]


def test_equal_names_in_two_directories_are_different_pictures(folder):
    """1.png exists in train and in test, here even with the same caption."""
    change_line(folder, 1, caption=CAPTIONS[NUM_TRAIN])
    assert not kinds(check(image_settings(folder)))


def test_the_shape_of_the_input_decides_what_is_narrow_and_small(folder):
    for number, path in enumerate(sorted(folder.rglob("*.png"))):
        random_picture(number, (20, 320)).save(path)
    assert kinds(check(image_settings(folder))) == {"narrow_picture"}
    assert not kinds(check(image_settings(folder, height=16, width=256)))
    assert kinds(check(image_settings(folder, height=64, width=1024))) == {"small_picture"}


def test_progress_counts_every_pair_once(folder):
    counts: list[int] = []
    check(image_settings(folder), progress=counts.append)
    assert sum(counts) == NUM_TRAIN + NUM_TEST


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *map(str, words)], terminal_width=200)
    return result.exit_code, result.output


def test_the_command_line_reports_pictures(folder):
    code, output = run(folder / "train", "--input", "image", "--pair", "en", "--test", folder / "test")
    assert code == 0
    assert "all pictures readable · no test pictures in training" in output
    assert "parallel" not in output
    (folder / "test" / "1.png").unlink()
    code, output = run(folder / "train", "--input", "image", "--pair", "en", "--test", folder / "test")
    assert code == 3
    assert "pictures that do not exist" in output
    assert "--fix" not in output
    code, output = run(folder / "train", "--input", "image", "--pair", "en", "--test", folder / "test", "--json")
    (finding,) = json.loads(output)["findings"]
    assert (finding["kind"], finding["level"], finding["lines"]) == ("missing_picture", "error", [1])


def test_fix_is_for_pairs_of_texts(folder):
    words = ["check", str(folder / "train"), "--input", "image", "--pair", "en", "--fix"]
    with pytest.raises(ConfigError, match="--fix is for pairs of texts"):
        CliRunner().invoke(app, words, catch_exceptions=False)


# ------------------------------------------------------------------------------------------------------ language models

TEXT = [source for source, _ in sentences(1500)]
TEST_TEXT = [source for source, _ in sentences(100, seed=2)]


def text_settings(folder: Path, train: list[str], test: list[str]) -> Settings:
    data = {}
    for split, texts in (("train", train), ("test", test)):
        (folder / f"{split}.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        data[split] = [{"files": [str(folder / f"{split}.txt")]}]
    return parse_settings({"target": "en", "data": data, "input": {"kind": "none"}, "tokenizer": {"kind": "words"}})


def test_good_text_has_no_findings(tmp_path):
    report = check(text_settings(tmp_path, TEXT, TEST_TEXT))
    assert report.findings == ()
    assert set(report.tokens) == {"target", "unknown", "vocabulary"}
    assert {"picture_overlap", "unreadable_picture", "ratio", "not_parallel"} <= report.unchecked


def test_faults_of_text_are_found_with_their_lines(tmp_path):
    faulty = [*TEXT]
    faulty[9], faulty[19], faulty[29] = "", "A m\u00c3\u00a4n", "Мужчина в красной рубашке"
    faulty[39], faulty[49] = TEXT[0].upper(), TEST_TEXT[0]
    report = check(text_settings(tmp_path, faulty, TEST_TEXT))
    assert {finding.kind: finding.lines.tolist() for finding in report.findings} == {
        "empty": [10], "mojibake": [20], "wrong_script": [30], "wrong_language": [30],
        "duplicate": [40], "overlap": [50],
    }  # fmt: skip


def test_text_in_another_language_is_an_error(tmp_path):
    german = [target for _, target in sentences(1500)]
    report = check(text_settings(tmp_path, german, TEST_TEXT))
    (finding,) = [finding for finding in report.findings if finding.level == "error"]
    assert (finding.kind, finding.detail) == ("language", "looks like de, not en")


# ------------------------------------------------------------------------------------------------------------ emoji


@pytest.mark.skipif(not EMOJI.is_dir(), reason="needs the emoji of HEEDFUL_DATA")
def test_emoji_have_no_faults_but_pictures_that_look_alike(tmp_path):
    """Real pictures with real captions: a few emoji are drawn like others."""
    header, *rows = (line.split("\t") for line in lines("emoji-captions/captions.tsv.gz"))
    sheet = Image.open(io.BytesIO((EMOJI / "sheet32.png").read_bytes())).convert("RGBA")
    captions = []
    for number, row in enumerate(dict(zip(header, row, strict=True)) for row in rows[:300]):
        left, top = 34 * int(row["sheet_x"]) + 1, 34 * int(row["sheet_y"]) + 1
        sheet.crop((left, top, left + 32, top + 32)).save(tmp_path / f"{number}.png")
        captions.append((f"{number}.png", row["en"]))
    write_captions(tmp_path / "captions.tsv", captions)
    tree = {"target": "en", "data": {"train": [{"files": [str(tmp_path)]}]}, "input": {"kind": "image"}}
    report = check(parse_settings(tree))
    assert not report.has_errors
    faults = {finding.kind: finding.count for finding in report.findings if finding.level != "note"}
    assert faults.keys() <= {"duplicate_picture", "fragments"}  # too little text for a vocabulary
    assert 0 < faults["duplicate_picture"] < 10
