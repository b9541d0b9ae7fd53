"""Tables as people have them: any dialect, header rows, ids, workbooks; the right two columns, or a clear question."""

import csv
import gzip
import struct
import zipfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful import errors
from heedful.corpus import tables
from heedful.corpus.languages import guess_language
from heedful.corpus.readers import read_pairs
from heedful.corpus.tables import DELIMITERS, Layout, Selection, detect_layout, language_of_name, open_table
from heedful.errors import DataError, MissingExtra
from heedful.text.small_words import SMALL_WORDS
from support.workbooks import sheet_xml, write_workbook

PAIRS = [
    ("The man, who is old, was here.", "O homem, que é velho, estava aqui."),
    ('She said: "Yes; it is | was".', 'Ela disse: "Sim; é | foi".'),
    ("They have 3 dogs\tand a cat.", "Eles têm 3 cães\te um gato."),
    ("It is for you and for me.", "É para você e para mim."),
    ("Where is it?", "Onde está?"),
]


def write_csv(path: Path, rows, delimiter=",", encoding="utf-8", **options) -> Path:
    with path.open("w", encoding=encoding, newline="") as stream:
        csv.writer(stream, delimiter=delimiter, **options).writerows(rows)
    return path


def read(path: Path, source="en", target="pt", **options):
    blocks = list(read_pairs([path], source, target, **options))
    pairs = [pair for block in blocks for pair in zip(block.source, block.target, strict=True)]
    return pairs, [line for block in blocks for line in block.lines], "".join(block.layout for block in blocks)


@pytest.mark.parametrize(
    "header", [None, ["id", "English", "Portuguese"], ["Nr.", "EN", "pt-BR"], ["", "source", "target"]]
)
@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_every_dialect(tmp_path, delimiter, quoting, encoding, has_ids, header):
    rows = [[f"s-{number:03}", *pair][not has_ids :] for number, pair in enumerate(PAIRS)]
    rows = [header[not has_ids :], *rows] if header else rows
    path = write_csv(tmp_path / "pairs.csv", rows, delimiter, encoding, quoting=quoting)
    pairs, lines, layout = read(path)
    assert pairs == PAIRS
    assert lines == list(range(1 + bool(header), 6 + bool(header)))
    first = 1 + has_ids
    expected = [f"columns {first} (en) and {first + 1} (pt)", "header row" if header else "no header row"]
    expected += ["column 1 is an id"] if has_ids else []
    assert layout == "; ".join([*expected, f"{DELIMITERS[delimiter]}-separated"])


field = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(field, field), min_size=1, max_size=8), st.sampled_from(list(DELIMITERS)))
def test_quoted_fields_are_read_back_whatever_they_contain(tmp_path_factory, rows, delimiter):
    """The dialect and the columns are given, so that nothing has to be detected."""
    path = write_csv(tmp_path_factory.mktemp("csv") / "a.csv", rows, delimiter, quoting=csv.QUOTE_ALL)
    records = list(tables.parse_csv(path, delimiter, 1 << 16))
    assert [tuple(record.fields) for record in records] == rows


def test_line_breaks_in_a_field_become_spaces_and_are_counted(tmp_path):
    rows = [(f"{source}\nmore", target) for source, target in PAIRS[:2]] + PAIRS[2:]
    path = write_csv(tmp_path / "a.csv", rows)
    (block,) = read_pairs([path], "en", "pt")
    assert block.source[:2] == [f"{source} more" for source, _ in PAIRS[:2]]
    assert (block.broken_lines, block.lines) == ([1, 3], [1, 3, 5, 6, 7])


def test_a_quote_that_is_never_closed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_RECORD_LINES", 50)
    path = tmp_path / "a.csv"
    path.write_text('a,b\nc,"d\n' + "e,f\n" * 100)
    with pytest.raises(DataError, match=r"a\.csv:2: a quote opens a field that does not end within 50 lines"):
        read(path)


def test_unreadable_rows_are_rejected_alone(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("a,b\nc\n\n,\nn\xe3o,d\n".encode("latin-1") + f"{'x' * 140_000},y\ne,f\n".encode())
    blocks = list(read_pairs([path], "en", "pt"))
    assert [pair for block in blocks for pair in zip(block.source, block.target, strict=True)] == [
        ("a", "b"),
        ("e", "f"),
    ]
    rejects = [(reject.line, reject.reason) for block in blocks for reject in block.rejects]
    assert rejects == [
        (2, "no comma between source and target"),
        (5, "not UTF-8 at byte 2"),
        (6, "field larger than field limit (131072)"),
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_refused_with_the_command_that_converts_it(tmp_path, encoding):
    text = "a,b\nc,d\n" if encoding == "utf-16" else "\ufeffa,b\n"
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(DataError, match="is UTF-16; convert it with: iconv -f UTF-16"):
        read(path)


def sentences(code: str, rows: int = 60) -> list[str]:
    words = SMALL_WORDS[code].split()
    return [
        " ".join(words[(row * step) % len(words)] for step in (1, 3, 5, 7, 11)) + f" x{row}y" for row in range(rows)
    ]


@pytest.mark.parametrize(
    "code", ["en", "de", "fr", "es", "pt", "it", "nl", "fi", "pl", "cs", "ro", "hu", "tr", "ru", "uk"]
)
def test_languages_are_guessed(code):
    assert guess_language(sentences(code)) == code


def test_a_language_that_is_not_clear_is_not_guessed():
    assert [guess_language(texts) for texts in ([], ["?!"], ["Tom"], ["walk twice", "jump left"] * 50)] == [None] * 4
    assert guess_language(["これは本です"]) == "ja"
    assert guess_language(["Αυτό είναι ένα βιβλίο"]) == "el"
    assert guess_language(["هذا كتاب"]) is None  # Arabic, Persian and Urdu share a script


COMMENTS = [f"checked by reviewer{row} ok" for row in range(60)]


@pytest.mark.parametrize(
    ("columns", "languages", "expected"),
    [
        ([sentences("en"), sentences("pt")], (None, None), (0, 1)),
        ([sentences("en"), sentences("pt"), COMMENTS], (None, None), (0, 1)),
        ([COMMENTS, sentences("pt"), sentences("en")], ("en", "pt"), (2, 1)),
        ([sentences("fr"), sentences("pt"), sentences("en")], ("pt", "fr"), (1, 0)),
        ([["doc"] * 60, sentences("en"), sentences("pt")], ("en", "pt"), (1, 2)),  # the same in every row: no text
        ([[f"{row}.5" for row in range(60)], sentences("en"), sentences("pt")], ("en", "pt"), (1, 2)),
    ],
)
def test_columns_are_chosen_by_what_they_contain(tmp_path, columns, languages, expected):
    path = write_csv(tmp_path / "a.csv", zip(*columns, strict=True))
    assert detect_layout(open_table(path), *languages).columns == expected


def test_columns_are_chosen_by_their_names(tmp_path):
    names = ["Comment", "Portuguese", "Text (English)", "French"]
    rows = [names, *zip(COMMENTS, *map(sentences, ("pt", "en", "fr")), strict=True)]
    path = write_csv(tmp_path / "a.csv", rows)
    layouts = {pair: detect_layout(open_table(path), *pair).columns for pair in (("en", "pt"), ("fr", "eng"))}
    assert layouts == {("en", "pt"): (2, 1), ("fr", "eng"): (3, 2)}
    chosen = Selection(("french", "Comment"))
    assert detect_layout(open_table(path), "fr", "en", chosen).columns == (3, 0)
    chosen = Selection(("2", "3"))
    assert detect_layout(open_table(path), selection=chosen) == Layout((1, 2), ("pt", "en"), has_header=True)


CAPTIONS = ["A cat sits.", "A dog runs fast.", "The house is big.", "An old man walks.", "Stars at night."]
FILES = [["cat", "dog", "red car", "old man", "night"], [f"img{number:03}" for number in range(5)]]


@pytest.mark.parametrize("names", FILES)
@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("image caption", (0, 1)),
        ("file_name text", (0, 1)),
        ("audio transcript", (0, 1)),
        ("path label", (0, 1)),
        ("caption picture", (1, 0)),
        ("id file_name caption", (1, 2)),
        ("image number description", (0, 2)),
        ("image_name comment_number comment", (0, 2)),
        ("client_id path sentence_id sentence", (1, 3)),
        ("image en de", (0, 1)),
        ("de en image", (2, 1)),
        ("image caption_de caption_en comment", (0, 2)),
    ],
)
def test_columns_of_media_are_chosen_by_their_names(tmp_path, header, columns, delimiter, names):
    cells = header.split()
    rows = [[f"{number} x{name[0]}" for name in cells] for number in range(5)]
    for row, name, caption in zip(rows, names, CAPTIONS, strict=True):
        row[columns[0]], row[columns[1]] = f"pictures/{name}.png", caption
    path = write_csv(tmp_path / ("a.tsv" if delimiter == "\t" else "a.csv"), [cells, *rows], delimiter)
    layout = detect_layout(open_table(path), "image", "en")
    assert (layout.columns, layout.has_header) == (columns, True)
    assert read(path, "image", "en")[0] == [
        (f"pictures/{name}.png", caption) for name, caption in zip(names, CAPTIONS, strict=True)
    ]


def test_unclear_columns_of_media_are_a_question(tmp_path):
    rows = [[f"{name}.png", caption, f"{caption} x"] for name, caption in zip(FILES[0], CAPTIONS, strict=True)]
    tsv = write_csv(tmp_path / "a.tsv", rows, "\t")
    assert detect_layout(open_table(tsv), "image", "en").columns == (0, 1)  # source TAB target TAB anything
    for path in (
        write_csv(tmp_path / "a.csv", rows),
        write_csv(tmp_path / "b.csv", [["image", "text", "label"], *rows]),
        write_csv(tmp_path / "b.tsv", [["image", "text", "label"], *rows], "\t"),
    ):
        with pytest.raises(DataError, match=r"not clear which two columns are the pair: 1 .*; 2 .*; 3 .* --columns"):
            read(path, "image", "en")


@pytest.mark.parametrize("pair", [("photo", "photo"), ("image", "description"), ("sound", "file")])
def test_names_of_columns_of_media_are_words_in_text(tmp_path, pair):
    for path, delimiter in ((tmp_path / "a.tsv", "\t"), (tmp_path / "a.csv", ",")):
        write_csv(path, [pair, ("cat", "chat"), ("dog", "chien")], delimiter)
        assert read(path, "en", "fr")[0][0] == pair


def test_unknown_names_of_columns_still_name_them(tmp_path):
    path = write_csv(tmp_path / "a.csv", [["Satz A", "Satz B"], *PAIRS])
    assert len(read(path)[0]) == 6  # nothing says that the first row is a header
    assert read(path, columns=("Satz B", "satz a"))[0] == [pair[::-1] for pair in PAIRS]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (("1", "4"), "has 3 columns: there is no column 4"),
        (("0", "1"), "there is no column 0"),
        (("English", "Portugese"), "no column `Portugese` in its first row: id, English, Portuguese; .*did you mean"),
        (("2", "2"), "choose two columns, source first"),
    ],
)
def test_columns_that_are_not_there(tmp_path, columns, says):
    path = write_csv(tmp_path / "a.csv", [["id", "English", "Portuguese"], *([1, *pair] for pair in PAIRS)])
    with pytest.raises(DataError, match=says):
        read(path, columns=columns)


def test_text_files_have_no_columns(tmp_path):
    for code in ("en", "pt"):
        (tmp_path / f"a.{code}").write_text("a\n")
    with pytest.raises(DataError, match="are text files without columns: remove `columns` and `sheet`"):
        read(tmp_path / "a", columns=("1", "2"))


def test_unclear_columns_are_a_question(tmp_path):
    rows = list(zip(sentences("en"), sentences("pt"), sentences("pt")[::-1], strict=True))
    path = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(DataError, match=r"not clear which two columns are the pair: 1 .*; 2 .*; 3 .* --columns 1,2"):
        read(path)
    path = write_csv(tmp_path / "b.csv", [["one"], ["two"], ["three"]])
    with pytest.raises(DataError, match="has only one column"):
        read(path)
    path = tmp_path / "a.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    assert read(path)[2].startswith("columns 1 (en) and 2 (pt)")  # source TAB target TAB anything


@pytest.mark.parametrize(
    ("name", "code"),
    [("English", "en"), ("Inglês", "en"), ("EN", "en"), ("Source (eng)", "en"), ("pt_BR", "pt_BR"), ("id", None),
     ("No", None), ("Text", None), ("", None), ("日本語", "ja"), ("Português (Brasil)", "pt")],
)  # fmt: skip
def test_languages_of_names(name, code):
    assert language_of_name(name) == code


# -------------------------------------------------------------------------------------------------------- workbooks


def test_a_workbook(tmp_path):
    rows = [["Nr", "English", "Portuguese"], *([number, *pair] for number, pair in enumerate(PAIRS, 1)), ["", "", ""]]
    path = write_workbook(tmp_path / "a.xlsx", {"First": rows, "Other one": [["a", "b"], ["c\nd", "e"]]})
    pairs, lines, layout = read(path)
    assert (pairs, lines) == (PAIRS, [2, 3, 4, 5, 6])
    assert layout == (
        "columns 2 (en) and 3 (pt); header row; column 1 is an id; sheet First (the first of 2), read whole"
    )
    assert read(path, columns=("3", "English"))[0] == [pair[::-1] for pair in PAIRS]
    assert read(path, sheet="Other one")[0] == [("a", "b"), ("c d", "e")]
    with pytest.raises(DataError, match="no sheet `Other`: its sheets are First, Other one"):
        read(path, sheet="Other")


def test_workbooks_that_unpack_to_too_much_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["word " * 1000, "b"]] * 50})
    monkeypatch.setattr(tables, "MAX_UNPACKED_BYTES", 100_000)
    with pytest.raises(DataError, match=r"unpacks to 0 MB, more than 0 MB: a workbook is read whole. Save .* as CSV"):
        read(path)


def test_a_workbook_that_lies_about_its_size_is_refused(tmp_path):
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["word " * 1000, "b"]] * 50})
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("xl/worksheets/sheet1.xml").file_size
    data = path.read_bytes()
    assert data.count(struct.pack("<L", size)) == 2  # in the local header and in the directory
    path.write_bytes(data.replace(struct.pack("<L", size), struct.pack("<L", 100)))
    with pytest.raises(DataError, match="cannot be read as a workbook"):
        read(path)


def test_a_cell_far_away_is_refused(tmp_path):
    far = sheet_xml([["a", "b"]]).replace("</sheetData>", '<row r="1048576"><c r="XFD1048576"/></row></sheetData>')
    path = write_workbook(tmp_path / "a.xlsx", {"A": far})
    with pytest.raises(DataError, match=r"spans 17,179,869,184 cells, more than 20,000,000"):
        read(path)


def test_cells_are_counted_across_chunks():
    xml = sheet_xml([["a", "b", "c"]] * 7).encode()
    for size in (1, 7, 64, 1000):
        chunks = (xml[begin : begin + size] for begin in range(0, len(xml), size))
        assert tables.spanned_cells(chunks) == 21


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 nothing", b"a,b\n"])
def test_what_is_no_workbook(tmp_path, data):
    path = tmp_path / "a.xlsx"
    path.write_bytes(data)
    with pytest.raises(DataError, match="cannot be read as a workbook"):
        read(path)
    packed = tmp_path / "a.xlsx.gz"
    packed.write_bytes(gzip.compress(data))
    with pytest.raises(DataError, match="must not be compressed again"):
        read(packed)


def test_a_workbook_needs_an_extra(tmp_path):
    path = write_workbook(tmp_path / "a.xlsx", {"A": PAIRS})
    find = errors.find_spec
    with (
        patch.object(errors, "find_spec", lambda name: None if name == "fastexcel" else find(name)),
        pytest.raises(MissingExtra, match=r"reading a\.xlsx needs fastexcel.*heedful\[xlsx\]"),
    ):
        read(path)
