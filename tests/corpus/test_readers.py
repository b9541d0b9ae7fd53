"""Reading: every format gives the same pairs, nothing shifts, nothing is dropped silently."""

import gzip
import json
from pathlib import Path
from xml.parsers import expat

import polars
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from heedful.corpus import readers, text_files
from heedful.corpus.readers import READERS, UnequalCounts, language_suffix, read_pairs, resolve_files, write_rejects
from heedful.corpus.text_files import MAX_LINE_BYTES
from heedful.errors import DataError

PACK = "".join(f"line {number}\n" for number in range(9_999)).encode()
PAIRS = [
    ("Good morning.", "Guten Morgen."),
    ("\u2028 a\x85b", "c\u2029d"),
    ("", "leer"),
    ("日本", "Япония"),
    ("x\ry", "z"),
]


def save(path: Path, data: bytes) -> Path:
    path.write_bytes(
        {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(path.suffix, lambda data: data)(data)
    )
    return path


def everything(files, source="en", target="de", **options):
    blocks = list(read_pairs(files, source, target, **options))
    pairs = [pair for block in blocks for pair in zip(block.source, block.target, strict=True)]
    lines = [line for block in blocks for line in block.lines]
    return pairs, lines, [reject for block in blocks for reject in block.rejects]


def two_files(folder: Path, pairs, packed: str = "", end: bytes = b"\n") -> list[Path]:
    return [
        save(folder / f"train.{code}{packed}", b"".join(pair[side].encode() + end for pair in pairs))
        for side, code in enumerate(("en", "de"))
    ]


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_two_files(tmp_path, packed, end):
    files = two_files(tmp_path, PAIRS, packed, end)
    pairs, lines, rejects = everything(files)
    assert pairs == PAIRS
    assert lines == [1, 2, 3, 4, 5]
    assert rejects == []
    assert everything([tmp_path / "train"]) == (pairs, lines, rejects)  # by what the names have in common
    assert everything(files[::-1])[0] == PAIRS  # the suffixes say which is which


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_one_file_of_each_format(tmp_path, packed):
    records = {
        "a.tsv": b"".join(f"{one}\t{two}\textra\n".encode() for one, two in PAIRS),
        "a.jsonl": b"".join(json.dumps({"source": one, "target": two}).encode() + b"\n" for one, two in PAIRS),
        "b.jsonl": b"".join(json.dumps({"src": one, "tgt": two}).encode() + b"\n" for one, two in PAIRS),
        "c.jsonl": b"".join(json.dumps({"translation": {"en": one, "de": two}}).encode() + b"\n" for one, two in PAIRS),
        "d.jsonl": b"".join(json.dumps({"q": one, "translatedText": two}).encode() + b"\n" for one, two in PAIRS),
    }
    for name, data in records.items():
        assert everything([save(tmp_path / (name + packed), data)]) == (PAIRS, [1, 2, 3, 4, 5], []), name


@pytest.mark.parametrize("columns", [("source", "target"), ("src", "tgt"), ("en", "de"), "translation"])
def test_parquet(tmp_path, columns):
    path = tmp_path / "a.parquet"
    if columns == "translation":
        table = polars.DataFrame({"translation": [{"en": one, "de": two} for one, two in PAIRS]})
    else:
        table = polars.DataFrame(PAIRS, schema=list(columns), orient="row")
    table.write_parquet(path)
    assert everything([path]) == (PAIRS, [1, 2, 3, 4, 5], [])


TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="EN"><seg>A <bpt i="1">&lt;b&gt;</bpt>big<ept i="1">&lt;/b&gt;</ept> <hi>red</hi> house &amp;
    a dog</seg></tuv><tuv xml:lang="pt-BR"><seg>Uma casa</seg></tuv></tu>
<tu><tuv xml:lang="en-GB"><seg>regional</seg></tuv><tuv xml:lang="pt-PT"><seg>Lisboa</seg></tuv>
    <tuv xml:lang="pt"><seg>exato</seg></tuv></tu>
<tu><tuv lang="en"><seg>two
lines</seg></tuv><tuv lang="pt_BR"><seg>duas</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv><tuv xml:lang="fr"><seg>seul</seg></tuv></tu>
</body></tmx>"""


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_tmx(tmp_path, packed):
    path = save(tmp_path / f"memory.tmx{packed}", TMX.encode())
    pairs, lines, rejects = everything([path], "en", "pt")
    assert pairs == [("A big red house &     a dog", "Uma casa"), ("regional", "exato"), ("two lines", "duas")]
    assert lines == [1, 2, 3]
    assert [(reject.line, reject.reason) for reject in rejects] == [(4, "no pt in this unit")]


def test_tmx_streams(tmp_path, monkeypatch):
    """Units read are forgotten: the tree never holds more than a few."""
    unit = '<tu><tuv lang="en"><seg>a{0}</seg></tuv><tuv lang="de"><seg>b{0}</seg></tuv></tu>'
    body = "".join(unit.format(number) for number in range(8_000))
    path = save(tmp_path / "long.tmx", f"<tmx><header/><body>{body}</body></tmx>".encode())
    import tracemalloc

    monkeypatch.setattr(readers, "MAX_BLOCK_ROWS", 256)
    tracemalloc.start()
    count = sum(len(block.lines) for block in read_pairs([path], "en", "de"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8_000
    assert peak < 2 << 20


def test_a_line_ends_at_the_byte_n_and_nowhere_else(tmp_path):
    odd = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h"
    files = two_files(tmp_path, [(odd, "1"), ("x", odd), ("y", "z")])
    assert everything(files)[0] == [(odd, "1"), ("x", odd), ("y", "z")]


def test_the_last_newline_may_be_missing_and_a_byte_order_mark_goes(tmp_path):
    one = save(tmp_path / "t.en", b"\xef\xbb\xbffirst\nlast")
    two = save(tmp_path / "t.de", b"\xef\xbb\xbferste\r\nletzte\r\n")
    assert everything([one, two])[0] == [("first", "erste"), ("last", "letzte")]


BAD = {
    "not UTF-8 at byte 3": b"ab\xff",
    "a NUL character": b"a\0b",
    f"longer than {MAX_LINE_BYTES:,} bytes": b"a" * (MAX_LINE_BYTES + 1),
}


@pytest.mark.parametrize("reason", list(BAD))
@pytest.mark.parametrize("side", [0, 1])
def test_what_cannot_be_read_is_listed_and_shifts_nothing(tmp_path, reason, side):
    good = [f"line {number}".encode() for number in range(1, 8)]
    sides = [list(good), list(good)]
    sides[side][3] = BAD[reason]
    files = [save(tmp_path / f"t.{code}", b"\n".join(lines)) for code, lines in zip(("en", "de"), sides, strict=True)]
    pairs, lines, rejects = everything(files)
    assert lines == [1, 2, 3, 5, 6, 7]
    assert all(one == two == f"line {line}" for (one, two), line in zip(pairs, lines, strict=True))
    assert [(Path(reject.file), reject.line, reject.reason) for reject in rejects] == [(files[side], 4, reason)]
    with (tmp_path / "rejects.jsonl").open("w", encoding="utf-8") as stream:
        write_rejects(stream, rejects)
    (row,) = map(json.loads, (tmp_path / "rejects.jsonl").read_text(encoding="utf-8").splitlines())
    assert (row["line"], row["reason"]) == (4, reason)
    assert len(row["sample"]) <= 80


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"source": "a"}', "the keys are source; expected `source` and `target`"),
        (b"[1]", "not a JSON object"),
        (b"{broken", "not JSON"),
        (b'{"source": "\\ud800", "target": "b"}', "lone surrogate"),
        (b'{"source": null, "target": "b"}', "missing"),
        (b'{"source": 3, "target": "b"}', "not text but int"),
        (b'{"source": "\xff", "target": "b"}', "not UTF-8"),
        (b"[" * 100_000, "longer than|not JSON"),
    ],
)
def test_records_that_are_none(tmp_path, line, reason):
    good = b'{"source": "a", "target": "b"}'
    path = save(tmp_path / "a.jsonl", b"\n".join([good, line, good]))
    pairs, lines, (reject,) = everything([path])
    assert lines == [1, 3]
    assert pairs == [("a", "b")] * 2
    assert reject.line == 2
    import re

    assert re.search(reason, reject.reason)


def test_a_tsv_line_without_a_tab(tmp_path):
    path = save(tmp_path / "a.tsv", b"a\tb\nalone\n")
    assert [(reject.line, reject.reason) for reject in everything([path])[2]] == [
        (2, "no tab between source and target")
    ]


def test_a_gigabyte_without_a_newline_stays_small(tmp_path):
    import tracemalloc

    path = tmp_path / "t.en.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(b"x" * (1 << 20))
        stream.write(b"\nshort\n")
    save(tmp_path / "t.de", b"1\n2\n")
    tracemalloc.start()
    pairs, _, rejects = everything([tmp_path / "t"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs == [("short", "2")]
    assert [reject.line for reject in rejects] == [1]
    assert peak < 16 << 20


def test_too_many_rejects_are_an_error_that_names_the_first(tmp_path):
    files = [save(tmp_path / "t.en", b"good\n" + b"b\xffd\n" * 5), save(tmp_path / "t.de", b"1\n2\n3\n4\n5\n6\n")]
    with pytest.raises(DataError, match=r"5 of 6 lines .*t\.en:2: not UTF-8") as error:
        everything(files, max_reject_share=0.05)
    assert error.value.exit_code == 3
    assert len(everything(files, max_reject_share=0.9)[0]) == 1


def test_a_stray_line_in_a_small_file_is_no_error(tmp_path):
    path = save(tmp_path / "a.tsv", b"a\tb\n" * 10 + b"\n")
    assert len(everything([path], max_reject_share=0.05)[0]) == 10


def test_unequal_counts_are_refused(tmp_path):
    files = [save(tmp_path / "t.en", b"1\n2\n3\n"), save(tmp_path / "t.de", b"1\n2\n")]
    with pytest.raises(UnequalCounts, match=r"3 lines and .* has 2.*heedful check") as error:
        everything(files)
    assert error.value.exit_code == 3
    assert error.value.counts == (3, 2)


@pytest.mark.parametrize("mark", text_files.BINARY_SIGNATURES)
def test_what_is_no_text_is_refused_whatever_its_name(tmp_path, mark):
    files = two_files(tmp_path, PAIRS)
    files[1].write_bytes(mark + b"and more\n")
    with pytest.raises(DataError, match=r"train\.de is not text but .*; (rename|unpack|save) .*"):
        list(read_pairs(files, "en", "de"))


@pytest.mark.parametrize(
    "told",
    [
        "not UTF-8 .* If the file is Latin-1, convert it with: iconv",
        "a NUL .* To list all such lines, type: heedful check FILES",
    ],
)
def test_too_many_rejects_come_with_advice(tmp_path, told):
    files = two_files(tmp_path, PAIRS)
    line = b"caf\xe9\n" if "UTF-8" in told else b"a\0b\n"
    for file in files:
        file.write_bytes(line * 9)
    with pytest.raises(DataError, match=told):
        list(read_pairs(files, "en", "de", max_reject_share=0.05))


def test_unequal_counts_survive_pickling():
    import pickle

    error = pickle.loads(pickle.dumps(UnequalCounts(Path("a"), Path("b"), (1, 2))))
    assert (error.counts, "not line-aligned" in " ".join(str(error).split())) == ((1, 2), True)


@given(
    st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=30), st.sampled_from([8, 11, 1 << 20])
)
def test_pairs_stay_pairs_whatever_the_bytes(tmp_path_factory, pairs, chunk):
    """Oracle: split at b"\\n", strip one b"\\r", decode; a pair is kept if both sides decode."""
    folder = tmp_path_factory.mktemp("any")
    pairs = [tuple(side.replace(b"\n", b"") for side in pair) for pair in pairs]
    files = [
        save(folder / f"t.{code}", b"".join(pair[side] + b"\n" for pair in pairs))
        for side, code in enumerate(("en", "de"))
    ]
    expected = []
    for number, pair in enumerate(pairs, 1):
        try:
            texts = [
                side.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").decode() for side in pair
            ]
        except UnicodeDecodeError:
            continue
        if not any("\0" in text for text in texts):
            expected.append((number, *texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "CHUNK_BYTES", chunk)
        patch.setattr(readers, "MAX_BLOCK_ROWS", 4)
        if any(
            side.startswith((b"\xff\xfe", b"\xfe\xff", *text_files.BINARY_SIGNATURES))
            for pair in pairs[:1]
            for side in pair
        ):
            return  # UTF-16, or no text: refused as a whole
        found, lines, rejects = everything(files)
    assert [(line, *pair) for line, pair in zip(lines, found, strict=True)] == expected
    assert sorted(lines + [reject.line for reject in rejects]) == list(range(1, len(pairs) + 1))


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["nowhere"], r"is not a .tsv.* and there is no"),
        (["train.en", "train.dee"], r"there is no file .*train\.dee; did you mean `train\.de`"),
        (["train.en", "train.de", "train.fr"], "one file or two, not 3"),
        (["a.tsv", "b.tsv"], "a file with both languages must be a separate corpus"),
        (["a.tsv"], "there is no file a.tsv"),
        (["train.en", "train.en"], "is both source and target; use two different files"),
    ],
)
def test_files_that_are_not_there(tmp_path, monkeypatch, files, says):
    two_files(tmp_path, PAIRS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=says):
        resolve_files(files, "en", "de")


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("t.en.gz", b"not gzip", "cannot be read to its end"),
        ("t.en.gz", gzip.compress(b"a\n" * 10_000, mtime=0)[:40], "cannot be read to its end"),
        ("t.en.zst", b"not zstandard", "cannot be decompressed"),
        ("t.en.zst", zstandard.ZstdCompressor().compress(PACK)[:-20], "has no end"),
        ("t.en", "a\nb\n".encode("utf-16"), "is UTF-16"),
        ("t.en", b"a\rb\rc\rd", "end in .r without .n; convert it with: tr"),
    ],
)
def test_files_that_are_not_what_they_say(tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    save(tmp_path / "t.de", b"1\n2\n")
    with pytest.raises(DataError, match=says):
        everything([tmp_path / "t"])


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [("a.tmx", b"<tmx><body><tu>", "is not well-formed TMX"), ("a.parquet", b"nothing", "cannot be read as Parquet")],
)
def test_broken_containers(tmp_path, name, data, says):
    with pytest.raises(DataError, match=says):
        everything([save(tmp_path / name, data)])


def test_a_parquet_without_the_columns(tmp_path):
    polars.DataFrame({"a": ["x"], "b": ["y"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        DataError, match="has the columns a, b: choose two of them by name, source first, for example: --columns"
    ):
        everything([tmp_path / "a.parquet"])
    assert everything([tmp_path / "a.parquet"], columns=("b", "a"))[0] == [("y", "x")]


def test_a_zst_of_several_frames(tmp_path):
    pack = zstandard.ZstdCompressor().compress
    (tmp_path / "t.en.zst").write_bytes(pack(b"1\n2") + pack(b"") + pack(b"\n3\n" + PACK))
    save(tmp_path / "t.de", b"1\n2\n3\n" + PACK)
    pairs, _, rejects = everything([tmp_path / "t"])
    assert len(pairs) == 10_002
    assert all(one == two for one, two in pairs)
    assert rejects == []


def test_parquet_as_it_comes(tmp_path):
    rows = 50
    sides = {side: [f"{side} {number}\nmore".encode() for number in range(rows)] for side in ("source", "target")}
    polars.DataFrame(sides).write_parquet(tmp_path / "c[1].parquet")  # binary columns, newlines, a name like a pattern
    polars.DataFrame({"source": ["x"], "target": ["y"]}).write_parquet(tmp_path / "c1.parquet")
    pairs, _, _ = everything([tmp_path / "c[1].parquet"])
    assert pairs == [(f"source {number} more", f"target {number} more") for number in range(rows)]
    save(tmp_path / "c.parquet.gz", (tmp_path / "c1.parquet").read_bytes())
    with pytest.raises(DataError, match="Parquet files must not be compressed again"):
        everything([tmp_path / "c.parquet.gz"])


def test_tmx_as_it_comes(tmp_path):
    unit = '<tu><tuv xml:lang="pt-PT"><seg>{0}</seg></tuv><tuv xml:lang="en"><seg>b</seg></tuv></tu>'
    nested = "<hi>" * 5_000 + "deep" + "</hi>" * 5_000
    body = f'<tmx xmlns="urn:x"><body>{unit.format("a")}{unit.format(nested)}</body></tmx>'
    path = save(tmp_path / "a.tmx", body.encode())
    assert everything([path], "pt", "en")[0] == [("a", "b"), ("deep", "b")]
    with pytest.raises(DataError, match=r"no text in pt-BR: its languages are pt-PT \(2 units\), en \(2 units\)"):
        everything([path], "pt-BR", "en")  # another region is another language here
    save(tmp_path / "b.tmx", b'<?xml version="1.0" encoding="no-such"?><tmx/>')
    with pytest.raises(DataError, match="not well-formed"):
        everything([tmp_path / "b.tmx"], "pt", "en")
    (tmp_path / "c.tmx.zst").write_bytes(b"no")
    with pytest.raises(DataError, match=r"cannot be decompressed|has no end"):
        everything([tmp_path / "c.tmx.zst"], "pt", "en")


@pytest.mark.skipif(expat.version_info < (2, 4, 1), reason="an expat that does not count what entities become")
def test_entities_that_multiply_are_refused(tmp_path):
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    body = '<tu><tuv lang="en"><seg>&a9;</seg></tuv><tuv lang="de"><seg>b</seg></tuv></tu>'
    text = f'<!DOCTYPE tmx [<!ENTITY a0 "laugh">{entities}]><tmx><body>{body}</body></tmx>'
    with pytest.raises(DataError, match="not well-formed"):
        everything([save(tmp_path / "a.tmx", text.encode())], "en", "de")


def test_a_hostile_key_cannot_reach_the_terminal(tmp_path):
    path = save(tmp_path / "a.jsonl", b'{"\\u001b[31m": "x"}')
    (reject,) = everything([path])[2]
    assert "\x1b" not in reject.reason
    assert "\\x1b[31m" in reject.reason


def test_language_of_a_name():
    assert [language_suffix(Path(name)) for name in ("train.EN", "x/train.pt-BR.gz", "plain")] == ["en", "pt-br", ""]


def test_every_reader_has_a_test():
    assert set(READERS) == {".tsv", ".csv", ".xlsx", ".jsonl", ".tmx", ".parquet"}
