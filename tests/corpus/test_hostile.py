"""What comes out of corpora that break careless readers."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.corpus.readers import BLOCK_BYTES, UnequalCounts, read_pairs
from heedful.corpus.text_files import CHUNK_BYTES, MAX_LINE_BYTES, iterate_lines
from heedful.data.store import open_prepared
from heedful.errors import DataError
from support.hostile_corpora import KINDS, LIMIT, Made, judge, planted, write_hostile, write_unequal
from support.process_memory import MB, MEASURABLE, Watched, watch

PAIRS = 24_000


def heedful(*words: str | Path) -> Watched:
    return watch([sys.executable, "-m", "heedful", *map(str, words)])


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> tuple[Path, list[Made]]:
    """A hostile corpus, prepared by one process."""
    folder = tmp_path_factory.mktemp("hostile")
    made = write_hostile(folder, PAIRS)
    ran = heedful("prepare", folder / "heedful.toml", "--workers", 1)
    assert ran.code == 0, ran.error
    if MEASURABLE:
        assert 0 < max(ran.peaks) < 500 * MB
    return folder, made


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The whole way, from files to tokens


def test_every_pair_is_kept_with_its_partner_or_listed_with_the_reason(corpora):
    folder, made = corpora
    kinds = planted(made)
    assert kinds.keys() == KINDS.keys()
    assert kinds.total() == PAIRS // 50
    assert not any(judge(open_prepared(folder / "prepared"), made).values())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_the_number_of_workers_does_not_show(corpora, workers):
    folder, _ = corpora
    before = tree(folder / "prepared")
    (folder / "prepared").rename(folder / f"before-{workers}")
    ran = heedful("prepare", folder / "heedful.toml", "--workers", workers)
    assert ran.code == 0, ran.error
    if MEASURABLE:
        assert len(ran.peaks) > workers
        assert max(ran.peaks) < 500 * MB
    after = tree(folder / "prepared")
    assert after.keys() == before.keys()
    assert [name for name, data in after.items() if data != before[name]] == []


def test_the_judge_can_be_dissatisfied(tmp_path):
    made = write_hostile(tmp_path, 2_000)
    assert heedful("prepare", tmp_path / "heedful.toml").code == 0
    prepared = open_prepared(tmp_path / "prepared")
    target = tmp_path / "prepared" / "text" / "00000" / "plain.target"
    first, second, *others = target.read_bytes().split(b"\n")
    target.write_bytes(b"\n".join([second, first, *others]))
    assert judge(prepared, made) == {
        "misaligned": 2, "altered": 2, "lost": 0, "listed_wrongly": 0, "tokenized_wrongly": 2
    }  # fmt: skip
    rejects = tmp_path / "prepared" / "cut" / "table" / "rejects.jsonl"
    text = rejects.read_text(encoding="utf-8")
    rejects.write_text(text.replace('"line": ', '"line": 1', 1), encoding="utf-8")
    assert judge(prepared, made)["listed_wrongly"] == 1
    rejects.write_text(text + text.splitlines()[-1] + "\n", encoding="utf-8")
    assert judge(prepared, made)["listed_wrongly"] == 1


# Files of unequal length


def test_files_of_unequal_length_are_refused_with_the_likely_place(tmp_path):
    source, target = write_unequal(tmp_path, 3_000, lost=2_100)
    prepare = heedful("prepare", tmp_path / "unequal.toml")
    assert prepare.code == UnequalCounts.exit_code == 3
    assert "3,000 lines" in prepare.error
    assert f"heedful check {source} {target}" in prepare.error
    check = heedful("check", source, target, "--json")
    assert check.code == 3
    (finding,) = [one for one in json.loads(check.output)["findings"] if one["kind"] == "unequal"]
    assert abs(finding["lines"][0] - 2_100) <= 5
    assert "3,000 and 2,999" in finding["detail"]


# Lines


@given(
    data=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bc", b"\0", b"\xff", b"\xe2\x80\xa8"])).map(b"".join),
    before=st.integers(0, 40),
    longest=st.integers(1, 12),
)
def test_a_line_ends_at_newlines_alone_wherever_the_chunks_do(tmp_path_factory, data, before, longest):
    path = tmp_path_factory.getbasetemp() / "lines"
    filled = b"x" * (CHUNK_BYTES - before - 1) + b"\n" + data
    path.write_bytes(filled)
    *every, last = filled.split(b"\n")
    expected = [line.removesuffix(b"\r")[: longest + 1] for line in ([*every, last] if last else every)]
    assert list(iterate_lines(path, longest)) == expected


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_too_long_is_never_cut_short_and_kept(tmp_path, packed):
    """Also where a carriage return stands right after what fits, and the rest of the line is dropped unread."""
    text = b"x" * MAX_LINE_BYTES + b"\r" + b"y" * (CHUNK_BYTES - MAX_LINE_BYTES - 1) + b"\nshort\n"
    files = [tmp_path / f"one.en{'.gz' * packed}", tmp_path / f"one.de{'.gz' * packed}"]
    for path in files:
        path.write_bytes(gzip.compress(text) if packed else text)
    (block,) = read_pairs(files, "en", "de")
    assert (block.source, block.target, block.lines) == (["short"], ["short"], [2])
    assert [(reject.line, reject.reason) for reject in block.rejects] == [(1, f"longer than {MAX_LINE_BYTES:,} bytes")]


def test_long_lines_make_small_blocks(tmp_path):
    line = b"x" * (LIMIT - 1) + b"\n"
    files = [tmp_path / "long.en", tmp_path / "long.de"]
    for path in files:
        path.write_bytes(line * 500)
    sizes = [len(block.lines) for block in read_pairs(files, "en", "de")]
    assert sum(sizes) == 500
    assert max(sizes) * 2 * LIMIT <= 3 * BLOCK_BYTES


DAMAGE = {
    "cut short": lambda data: data[: len(data) // 2],
    "one bit": lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:],  # of the checksum
    "garbage": lambda data: data[:10] + b"\xff" * 100,  # after the header
    "no archive": lambda data: b"no archive at all",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_archive_is_refused_in_words(tmp_path, how):
    path = tmp_path / "table.tsv.gz"
    path.write_bytes(DAMAGE[how](gzip.compress(b"".join(b"%d\t%d\n" % (one, one**7) for one in range(5_000)))))
    with pytest.raises(DataError, match=r"table\.tsv\.gz cannot be read to its end"):
        list(read_pairs([path], "en", "de"))


def test_a_record_that_cannot_be_read_is_shown(tmp_path):
    for name, data in (("one.jsonl", b'{"source": "a"}\n[1]\n{\n\xffabc\n'), ("one.tsv", b"no tab\n")):
        (tmp_path / name).write_bytes(data)
        (block,) = read_pairs([tmp_path / name], "en", "de")
        assert not block.lines
        shown = [line.decode(errors="backslashreplace") for line in data.splitlines()]
        assert [reject.sample for reject in block.rejects] == shown
