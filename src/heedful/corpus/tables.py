r"""Reads tables of sentence pairs (CSV in any dialect, TSV, XLSX), and finds the two columns with the pairs.

    table = open_table(Path("pairs.csv"))
    layout = detect_layout(table, "en", "pt")
    layout.describe()                # columns 2 (en) and 3 (pt); header row; column 1 is an id
    for record in table.records: ...

The delimiter, the header row, ids and languages are detected from the first HEAD_RECORDS records. CSV and TSV are
streamed; the time is linear and the memory constant. XLSX is a ZIP archive that is read whole, so its size is limited.
"""

import csv
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from heedful.corpus.text_files import MAX_LINE_BYTES, iterate_lines, strip_compression_suffix
from heedful.errors import DataError, did_you_mean, require
from heedful.inputs.kinds import NOUNS
from heedful.text.language_codes import LONG_CODES, base_language

HEAD_RECORDS = 500  # from which the layout is detected
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
MAX_RECORD_LINES = 1000  # of a quoted field; more means that a quote is never closed
MAX_UNPACKED_BYTES = 1 << 29  # of a workbook
MAX_CELLS = 20_000_000  # of the rectangle that a sheet spans: empty cells need memory, too
CELL_REFERENCE = re.compile(rb"""[\s"']r\s*=\s*["']([A-Z]{1,3})([0-9]{1,7})["']""")
ID = re.compile(r"[\w.:#/-]*\d[\w.:#/-]*")  # 17, s-0017, doc3:12
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*%?")
COLUMN_LANGUAGES = {  # as people call the columns of a table, by language code
    "en": "english inglês ingles inglés anglais englisch inglese английский",
    "de": "german deutsch alemão alemao alemán aleman allemand tedesco немецкий",
    "fr": "french français francais francês frances francés französisch francese французский",
    "es": "spanish español espanol espanhol espagnol spanisch spagnolo испанский",
    "pt": "portuguese português portugues portugués portugais portugiesisch portoghese португальский",
    "it": "italian italiano italien italienisch итальянский",
    "nl": "dutch nederlands holandês néerlandais niederländisch",
    "ru": "russian русский russo ruso russe russisch",
    "uk": "ukrainian українська ucraniano ukrainisch",
    "pl": "polish polski polonês polnisch",
    "cs": "czech čeština česky checo tschechisch",
    "sv": "swedish svenska sueco schwedisch",
    "da": "danish dansk",
    "no": "norwegian norsk",
    "fi": "finnish suomi",
    "ro": "romanian română",
    "hu": "hungarian magyar",
    "tr": "turkish türkçe",
    "el": "greek ελληνικά",
    "ar": "arabic العربية",
    "he": "hebrew עברית",
    "hi": "hindi हिन्दी",
    "ja": "japanese 日本語",
    "ko": "korean 한국어",
    "zh": "chinese 中文",
    "vi": "vietnamese",
    "id": "indonesian",
}
SIDE_WORDS = {  # other words in the header of a source and of a target
    "source": "source src original fonte origem fuente quelle",
    "target": "target tgt translation trans tradução traducao traducción ziel übersetzung traduction",
}
MEDIA_WORDS = {  # in the header of a table whose sources are files
    "source": "image picture photo audio recording sound graph file filename path",
    "target": "caption transcript transcription sentence text label description comment",
}
OTHER_WORDS = (
    "id ids no nr number key index line row text texts sentence sentences segment string phrase language lang comment "
    "comments note notes score date status domain context"
)


class Record(NamedTuple):
    """One row of a table; `reason` says why it cannot be read."""

    line: int  # on which it begins, from 1
    fields: Sequence[str]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user chose in a table: two columns, by number from 1 or by name, and a sheet of a workbook."""

    columns: tuple[str, ...] = ()
    sheet: str | None = None


DEFAULT = Selection()  # columns that look like the pair, in the first sheet


@dataclass(slots=True)
class Table:
    """The records of a table, of which `head` are the first ones."""

    path: Path
    head: list[Record]
    records: Iterator[Record]  # all of them, with the head
    format: str  # such as "comma-separated"
    needs_clear_columns: bool  # False: the first two columns are the pair, unless others fit better
    delimiter: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the pairs of a table are."""

    columns: tuple[int, int] = (0, 1)  # from 0
    languages: tuple[str | None, str | None] = (None, None)
    has_header: bool = False
    id_columns: tuple[int, ...] = ()
    format: str = field(default="", compare=False)

    def describe(self) -> str:
        """columns 2 (en) and 3 (pt); header row; column 1 is an id"""
        columns = " and ".join(
            f"{column + 1}" + (f" ({language})" if language else "")
            for column, language in zip(self.columns, self.languages, strict=True)
        )
        ids = [f"column {column + 1} is an id" for column in self.id_columns]
        header = "header row" if self.has_header else "no header row"
        return "; ".join(filter(None, (f"columns {columns}", header, *ids, self.format)))


# --------------------------------------------------------------------------------------------------------- reading


def open_table(path: Path, selection: Selection = DEFAULT, max_line_bytes: int = MAX_LINE_BYTES) -> Table:
    """Open a table by the suffix of its file."""
    return TABLES[strip_compression_suffix(path).suffix.lower()](path, selection, 8 * max_line_bytes)


def split_head(records: Iterator[Record]) -> tuple[list[Record], Iterator[Record]]:
    head = list(islice(records, HEAD_RECORDS))
    return head, chain(head, records)


def open_tsv(path: Path, _selection: Selection, max_line_bytes: int) -> Table:
    """A tab between any two fields; quotes are text."""

    def records() -> Iterator[Record]:
        for number, line in enumerate(iterate_lines(path, max_line_bytes), 1):
            text = line.decode(errors="surrogateescape")
            is_long = len(line) > max_line_bytes
            yield Record(number, text.split("\t"), f"longer than {max_line_bytes:,} bytes" if is_long else None)

    return Table(path, *split_head(records()), "", needs_clear_columns=False, delimiter="\t")


def open_csv(path: Path, _selection: Selection, max_line_bytes: int) -> Table:
    """Fields may be in quotes, and then contain delimiters and line breaks."""
    head = [line.decode(errors="surrogateescape") for line in islice(iterate_lines(path, max_line_bytes), HEAD_RECORDS)]
    delimiter = detect_delimiter(head)
    records = parse_csv(path, delimiter, max_line_bytes)
    return Table(path, *split_head(records), f"{DELIMITERS[delimiter]}-separated", True, delimiter)


def detect_delimiter(lines: Sequence[str]) -> str:
    """The delimiter with which most rows have the same number of fields, and more than one."""

    def agreement(delimiter: str) -> int:
        try:
            widths = Counter(len(row) for row in csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
        except csv.Error:
            return 0
        return max((count for width, count in widths.items() if width > 1), default=0)

    return max(DELIMITERS, key=agreement)  # the first of equally good ones


def parse_csv(path: Path, delimiter: str, max_line_bytes: int) -> Iterator[Record]:
    """The records of a CSV file without blank ones; invalid UTF-8 is kept as lone surrogates, to be rejected later."""
    num_lines, begin = 0, 1

    def texts() -> Iterator[str]:
        nonlocal num_lines
        for line in iterate_lines(path, max_line_bytes):
            num_lines += 1
            if num_lines - begin >= MAX_RECORD_LINES:
                raise DataError(
                    f"{path}:{begin}: a quote opens a field that does not end within {MAX_RECORD_LINES:,} lines: close "
                    'it, or double it if it is part of the text ("")'
                )
            yield line.decode(errors="surrogateescape").replace("\r", " ") + "\n"

    reader = csv.reader(texts(), delimiter=delimiter)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # a very long field
            yield Record(begin, (), str(error))
        else:
            if any(fields):
                yield Record(begin, fields)
        begin = num_lines + 1


def open_xlsx(path: Path, selection: Selection, _max_line_bytes: int) -> Table:
    """The first sheet of a workbook, or the chosen one."""
    require("polars", extra="xlsx", whose=f"reading {path.name}")
    require("fastexcel", extra="xlsx", whose=f"reading {path.name}")
    import fastexcel
    import polars

    if path != strip_compression_suffix(path):
        raise DataError(f"{path}: a workbook must not be compressed again; decompress it first")
    check_workbook(path)
    try:
        sheets = fastexcel.read_excel(path).sheet_names
        if selection.sheet is not None and selection.sheet not in sheets:
            hint = did_you_mean(selection.sheet, sheets)
            raise DataError(f"{path} has no sheet `{selection.sheet}`: its sheets are {', '.join(sheets)}{hint}")
        sheet = selection.sheet or sheets[0]
        cells = polars.read_excel(
            path, sheet_name=sheet, engine="calamine", has_header=False, drop_empty_rows=False, drop_empty_cols=False,
            raise_if_empty=False, read_options={"dtypes": "string", "skip_rows": 0},
        )  # fmt: skip
    except (fastexcel.FastExcelError, polars.exceptions.PolarsError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a workbook: {error}") from None
    rows = (Record(number, [cell or "" for cell in row]) for number, row in enumerate(cells.iter_rows(), 1))
    which = f" (the first of {len(sheets)})" if len(sheets) > 1 and not selection.sheet else ""
    return Table(path, *split_head(row for row in rows if any(row.fields)), f"sheet {sheet}{which}, read whole", True)


def check_workbook(path: Path) -> None:
    """Raise a DataError if a workbook is damaged, or unpacks to more than memory should hold."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            num_bytes = sum(part.file_size for part in parts)
            if num_bytes > MAX_UNPACKED_BYTES:
                raise DataError(
                    f"{path} unpacks to {num_bytes / 1e6:,.0f} MB, more than {MAX_UNPACKED_BYTES / 1e6:,.0f} MB: a "
                    "workbook is read whole. Save the sheet as CSV, which is streamed"
                )
            for part in parts:  # reading verifies sizes and checksums: a part that is larger than it says is an error
                with archive.open(part) as stream:
                    chunks = iter(partial(stream.read, 1 << 20), b"")
                    num_cells = spanned_cells(chunks) if "worksheets/" in part.filename else sum(0 for _ in chunks)
                    if num_cells > MAX_CELLS:
                        raise DataError(
                            f"{path}: a sheet spans {num_cells:,} cells, more than {MAX_CELLS:,}: delete cells far "
                            "from the table, or save the sheet as CSV"
                        )
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a workbook ({error}): open it in a spreadsheet program and save it again as "
            ".xlsx or CSV"
        ) from None


def spanned_cells(chunks: Iterator[bytes]) -> int:
    """Rows times columns of the rectangle around all cells of a sheet in XML."""
    rows, columns = [1 << 30, 0], [1 << 30, 0]
    rest = b""
    for chunk in chunks:
        rest = rest[-64:] + chunk
        for letters, digits in set(CELL_REFERENCE.findall(rest)):
            column = 0
            for letter in letters:
                column = 26 * column + letter - 64
            rows = [min(rows[0], int(digits)), max(rows[1], int(digits))]
            columns = [min(columns[0], column), max(columns[1], column)]
    return max(0, rows[1] - rows[0] + 1) * max(0, columns[1] - columns[0] + 1)


TABLES: dict[str, Callable[[Path, Selection, int], Table]] = {".tsv": open_tsv, ".csv": open_csv, ".xlsx": open_xlsx}


# ---------------------------------------------------------------------------------------------------------- layout


def detect_layout(
    table: Table, source: str | None = None, target: str | None = None, selection: Selection = DEFAULT
) -> Layout:
    """Where the pairs are: in the chosen columns; else by the header, the content and the languages, if known."""
    rows = [record.fields for record in table.head if record.reason is None]
    if not rows:
        return Layout(format=table.format)
    first, body = [field.strip() for field in rows[0]], rows[1:]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    columns = [[row[column].strip() for row in body if column < len(row)] for column in range(width)]
    id_like = [column for column, values in enumerate(columns) if is_code(values)]
    known_words = MEDIA_COLUMN_WORDS if source in NOUNS else COLUMN_WORDS
    has_header = is_header(first, {column: columns[column] for column in id_like}, known_words)
    header = first if has_header else []
    if not has_header:
        columns = [[row[column].strip() for row in rows if column < len(row)] for column in range(width)]
    if selection.columns:
        chosen, by_name = chosen_columns(table.path, selection.columns, first, width)
        has_header, header = has_header or by_name, first if has_header or by_name else []
    else:
        texts = [column for column in range(width) if column not in id_like and is_varied(columns[column])]
        chosen = columns_of_header(header, source, target) or columns_of_content(
            table, columns, texts, source, target, header
        )
    known = [language_of_name(header[column]) if column < len(header) else None for column in chosen]
    if source and target:
        languages: tuple[str | None, str | None] = (source, target)
    else:
        from heedful.corpus.languages import guess_language

        languages = tuple(
            name or guess_language(columns[column] if column < width else [])
            for name, column in zip(known, chosen, strict=True)
        )  # type: ignore[assignment]
    ids = tuple(
        column for column in id_like if column not in chosen and len(set(columns[column])) > 0.5 * len(columns[column])
    )
    return Layout(chosen, languages, has_header, ids, table.format)


def is_code(values: Sequence[str]) -> bool:
    """Whether a column has ids or numbers: at least three, and nearly nothing else."""
    filled = [value for value in values if value]
    num_codes = sum(bool(ID.fullmatch(value) or NUMBER.fullmatch(value)) for value in filled)
    return len(filled) >= 3 and num_codes >= 0.95 * len(filled)


def is_varied(values: Sequence[str]) -> bool:
    """Whether a column can be text: a few rows of anything, or more than a few different values."""
    filled = [value for value in values if value]
    return len(filled) < 5 or len(set(filled)) > max(1, 0.02 * len(filled))


def is_header(first: Sequence[str], codes: dict[int, Sequence[str]], known_words: Set[str]) -> bool:
    """Whether the first row names the columns: two names that are common, or words above a column of codes."""
    num_names = sum(is_column_name(cell, known_words) for cell in first)
    above_codes = any(column < len(first) and first[column] and not is_code([first[column]] * 3) for column in codes)
    return num_names >= 2 or above_codes


def is_column_name(cell: str, known_words: Set[str]) -> bool:
    """Whether a cell has only common words of headers: English, source text, pt-BR, Portuguese (Brazil)"""
    words = name_words(re.sub(r"(?<=\w)\s*\(.*\)", "", cell))
    is_tag = bool(cell) and language_of_name(cell) == cell
    return is_tag or (bool(words) and all(word in known_words or language_of_name(word) for word in words))


def name_words(cell: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", cell.casefold()) if len(cell) <= 60 else []


COLUMN_WORDS = {word for words in (*SIDE_WORDS.values(), OTHER_WORDS) for word in words.split()}
MEDIA_COLUMN_WORDS = COLUMN_WORDS | {"name", *(word for words in MEDIA_WORDS.values() for word in words.split())}
LANGUAGE_OF_NAME = {name: code for code, names in COLUMN_LANGUAGES.items() for name in names.split()}


def language_of_name(cell: str) -> str | None:
    """English, "Source (EN)", pt-BR -> en, en, pt-BR; None if a name has no language."""
    tag = re.fullmatch(r"([A-Za-z]{2,3})[-_][A-Za-z]{2,4}", cell)
    if tag and language_of_name(tag[1]):
        return cell
    for word in name_words(cell):
        if word in LANGUAGE_OF_NAME:
            return LANGUAGE_OF_NAME[word]
    codes = [word for word in name_words(cell) if word in COLUMN_LANGUAGES and word not in OTHER_WORDS.split()]
    if codes:
        return codes[0]
    return next((LONG_CODES[word] for word in name_words(cell) if word in LONG_CODES), None)


def chosen_columns(path: Path, chosen: Sequence[str], first: Sequence[str], width: int) -> tuple[tuple[int, int], bool]:
    """The numbers, from 0, of the columns that the user chose, and whether by names in the first row."""
    if len(chosen) != 2 or chosen[0].casefold() == chosen[1].casefold():
        raise DataError(f"columns {','.join(chosen)}: choose two columns, source first, for example: --columns 2,3")
    names = {name.casefold(): column for column, name in reversed(list(enumerate(first)))}
    numbers = []
    for name in chosen:
        column = names.get(name.casefold())
        if column is None and name.isascii() and name.isdigit():
            column = int(name) - 1
            if not 0 <= column < width:
                raise DataError(f"{path} has {width} columns: there is no column {name}")
        if column is None:
            raise DataError(
                f"{path} has no column `{name}` in its first row: {', '.join(first[:12])}; use these names, or "
                f"numbers such as --columns 2,3{did_you_mean(name, first)}"
            )
        numbers.append(column)
    return (numbers[0], numbers[1]), any(not name.isdigit() for name in chosen)


def columns_of_header(header: Sequence[str], source: str | None, target: str | None) -> tuple[int, int] | None:
    """The columns by the languages in the header, or by words for source and target; None if it does not say."""
    languages = [language_of_name(cell) for cell in header]
    named = [column for column, language in enumerate(languages) if language]
    if source and target:
        matches = [
            next((column for column in named if base_language(languages[column] or "") == base_language(code)), None)
            for code in (source, target)
        ]
        if matches[0] is not None and matches[1] is not None and matches[0] != matches[1]:
            return matches[0], matches[1]
    elif len(named) == 2:
        return named[0], named[1]
    if source in NOUNS:
        sides = [media_columns(header, side) for side in MEDIA_WORDS]
        in_target = [
            column for column in named if base_language(languages[column] or "") == base_language(target or "")
        ]
        sides[1] = in_target or sides[1]  # image, en, de
    else:
        sides = [
            [column for column, cell in enumerate(header) if set(name_words(cell)) & set(words.split())]
            for words in SIDE_WORDS.values()
        ]
    return (sides[0][0], sides[1][0]) if all(len(side) == 1 for side in sides) and sides[0] != sides[1] else None


def media_columns(header: Sequence[str], side: str) -> list[int]:
    """The columns with files, or with what is said about them: image, file_name; not image_id."""
    words = set(MEDIA_WORDS[side].split())
    names = [set(name_words(cell)) for cell in header]
    return [column for column, name in enumerate(names) if name & words and name <= words | {"name"}]


def columns_of_content(
    table: Table,
    columns: Sequence[Sequence[str]],
    texts: Sequence[int],
    source: str | None,
    target: str | None,
    header: Sequence[str],
) -> tuple[int, int]:
    """The two columns with text; of several, those in the two languages. Names of files do not look like text."""
    has_media = source in NOUNS
    if len(columns) == 2:
        return 0, 1
    if has_media:
        texts = ()
    if len(texts) == 2:
        return texts[0], texts[1]
    if len(texts) > 2:
        from heedful.corpus.languages import guess_language

        guesses = {column: guess_language(columns[column]) for column in texts}
        if source and target:
            wanted = [
                [column for column in texts if guesses[column] == base_language(code)] for code in (source, target)
            ]
            if all(len(matches) == 1 for matches in wanted) and wanted[0] != wanted[1]:
                return wanted[0][0], wanted[1][0]
        else:
            known = [column for column in texts if guesses[column]]
            if len(known) == 2 and guesses[known[0]] != guesses[known[1]]:
                return known[0], known[1]
    if not table.needs_clear_columns and not (has_media and header):
        return 0, 1
    if len(columns) < 2:
        names = ", ".join(DELIMITERS.values())
        raise DataError(f"{table.path} has only one column: a table needs two, separated by a {names}")
    labels = [
        f"({header[column]})" if column < len(header) else next(filter(None, values), "")[:30]
        for column, values in enumerate(columns)
    ]
    listed = "; ".join(
        f"{column + 1} {labels[column]}" for column in (texts if len(texts) > 2 else range(len(columns)))[:8]
    )
    raise DataError(
        f"{table.path}: it is not clear which two columns are the pair: {listed}. Choose them, source first, for "
        "example: --columns 1,2"
    )
