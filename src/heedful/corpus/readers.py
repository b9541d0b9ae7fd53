r"""Read pairs from common formats: two line-aligned files, TSV, CSV, XLSX, JSONL, TMX, Parquet.

    for block in read_pairs(["train.en", "train.de"], "en", "de"):
        block.source, block.target, block.lines, block.rejects

Bytes are decoded strictly before any other processing. An unreadable line is rejected together with its partner, with
its line number and the reason; the lines around it stay paired.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from heedful.corpus.tables import DELIMITERS, TABLES, Layout, Record, Selection, Table, detect_layout, open_table
from heedful.corpus.text_files import (
    COMPRESSIONS,
    MAX_LINE_BYTES,
    iterate_lines,
    strip_compression_suffix,
    suggest_path,
)
from heedful.corpus.tmx import TmxLanguages, iterate_units
from heedful.errors import DataError, require
from heedful.inputs.kinds import NOUNS
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from heedful.config import CorpusSettings, Settings

NO_SOURCE = "none"  # instead of a source language; for sources in files, a key of NOUNS
TABLE_NAMES = tuple(
    f"{stem}.{suffix}"
    for stem in ("captions", "transcripts", "labels", "metadata")
    for suffix in ("tsv", "csv", "jsonl")
)
MAX_BLOCK_ROWS = 1 << 12
BLOCK_BYTES = 1 << 22  # approximately; a block of long pairs has fewer rows
TOLERATED_REJECTS = 3  # in any file, however small


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that could not be read, and why."""

    file: str
    line: int  # from 1
    reason: str
    sample: str  # the beginning of the line


@dataclass(slots=True)
class Block:
    """Consecutive pairs of a file, and the rejects among them."""

    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # of each pair, from 1
    rejects: list[Reject] = field(default_factory=list)
    broken_lines: list[int] = field(default_factory=list)  # of pairs with line breaks, which were replaced by spaces
    layout: str = ""  # of a table or translation memory, in words; only in the first block


class UnequalCounts(DataError):
    """Two files that should be line-aligned have different numbers of lines."""

    def __init__(self, source: Path, target: Path, counts: tuple[int, int]) -> None:
        super().__init__(source, target, counts)
        self.source, self.target, self.counts = source, target, counts

    def __str__(self) -> str:
        command = shlex.join(["heedful", "check", str(self.source), str(self.target)])
        return (
            f"{self.source} has {self.counts[0]:,} lines and {self.target} has {self.counts[1]:,}: they are not "
            f"line-aligned. To see where they diverge, type: {command}"
        )


# ---------------------------------------------------------------------------------------------------------- files


def resolve_files(files: Sequence[str | Path], source: str, target: str) -> tuple[Path, ...]:
    """The files of a corpus: (source, target), or one file that contains both.

    "data/train" means data/train.SOURCE and data/train.TARGET, optionally with .gz or .zst. Two files are swapped if
    their suffixes are the target language and the source language. A corpus of a language model is one text file, and
    one of pictures, recordings or graphs is a file with their paths, or a directory that contains it.
    """
    paths = [Path(file) for file in files]
    if source == NO_SOURCE or source in NOUNS:
        return (find_single_file(paths, source),)
    if len(paths) == 1 and not pair_format(paths[0]):
        paths = [find_side_file(paths[0], language) for language in (source, target)]
    if len(paths) > 2:
        raise DataError(f"a corpus is one file or two, not {len(paths)}; make each pair of files a separate corpus")
    if len(paths) == 2 and any(pair_format(path) for path in paths):
        raise DataError(f"{paths[0]} and {paths[1]}: a file with both languages must be a separate corpus")
    for path in paths:
        if not path.is_file():
            raise DataError(f"there is no file {path}{suggest_path(path)}")
    if len(paths) == 2 and paths[0] == paths[1]:
        raise DataError(f"{paths[0]} is both source and target; use two different files")
    if len(paths) == 2 and [language_suffix(path) for path in paths] == [target.lower(), source.lower()]:
        paths.reverse()
    return tuple(paths)


def find_single_file(paths: Sequence[Path], source: str) -> Path:
    """The file of a corpus whose sources are not text."""
    nouns = NOUNS.get(source)
    content = "sentences" if nouns is None else f"the paths of {nouns.sources} and their {nouns.texts}"
    if len(paths) != 1:
        raise DataError(f"got {len(paths)} files, but a corpus is one file with {content}")
    path = paths[0]
    if path.is_dir() and nouns is not None:
        names = [name for name in TABLE_NAMES if (path / name).is_file()]
        if not names:
            raise DataError(
                f"{path} has no file with {nouns.texts}: add a {nouns.texts}.tsv with the path of a {nouns.source}, "
                f"a tab and its {nouns.text} in each line"
            )
        path = path / names[0]
    if not path.is_file():
        raise DataError(f"there is no file {path}{suggest_path(path)}")
    if nouns is not None and pair_format(path) in (None, ".tmx"):
        raise DataError(
            f"{path} is not a table: pass a .tsv, .csv, .xlsx, .jsonl or .parquet with the paths of "
            f"{nouns.sources} and their {nouns.texts}"
        )
    if source == NO_SOURCE and pair_format(path):
        raise DataError(
            f"{path}: a language model is trained on a text file with one sentence per line; write the "
            "column with the text to such a file"
        )
    return path


def find_side_file(stem: Path, language: str) -> Path:
    """data/train, "en" -> data/train.en, data/train.en.gz or data/train.en.zst, whichever exists."""
    names = [stem.with_name(f"{stem.name}.{language}{suffix}") for suffix in COMPRESSIONS]
    for path in names:
        if path.is_file():
            return path
    if stem.is_file():
        raise DataError(f"{stem} is one file of a pair: add the other file, or use a {PAIR_FORMATS} with both sides")
    raise DataError(
        f"{stem} is not a {PAIR_FORMATS} file, and there is no {names[0]} (or .gz, .zst): use two "
        "files, such as train.en and train.de, or one file with both sides"
    )


def pair_format(path: Path) -> str | None:
    """The key of READERS if the file contains both sides, else None."""
    suffix = strip_compression_suffix(path).suffix.lower()
    return suffix if suffix in READERS else None


def is_table(files: Sequence[str | Path]) -> bool:
    """Whether a corpus is one file with columns or keys, of which two can be chosen."""
    return len(files) == 1 and pair_format(Path(files[0])) not in (None, ".tmx")


def is_workbook(files: Sequence[str | Path]) -> bool:
    return len(files) == 1 and pair_format(Path(files[0])) == ".xlsx"


def language_suffix(path: Path) -> str:
    """The last suffix, which is the language if the file is one side of a pair."""
    return strip_compression_suffix(path).suffix.removeprefix(".").lower()


# --------------------------------------------------------------------------------------------------------- formats


@dataclass(slots=True)
class RawPairs:
    """Unchecked pairs: bytes from files, or text from a parser; None where the parser failed."""

    source: Sequence[bytes | str | None]
    target: Sequence[bytes | str | None]
    lines: Sequence[int]
    reasons: dict[int, str] = field(default_factory=dict)  # why a parser failed, by position
    layout: str = ""


def batch_lines(*sides: Iterator[bytes], step: int = 64) -> Iterator[tuple[list[bytes], ...]]:
    """Batches of up to MAX_BLOCK_ROWS lines and about BLOCK_BYTES, equally many per side until one ends."""
    has_ended = False
    while not has_ended:
        batch: tuple[list[bytes], ...] = tuple([] for _ in sides)
        size = 0
        while not has_ended and len(batch[0]) < MAX_BLOCK_ROWS and size < BLOCK_BYTES:
            for lines, side in zip(batch, sides, strict=True):
                more = list(islice(side, step))
                lines += more
                size += sum(map(len, more))
                has_ended |= len(more) < step
        if any(batch):
            yield batch


def read_two_files(source: Path, target: Path, max_line_bytes: int) -> Iterator[RawPairs]:
    """Pair line i of one file with line i of the other."""
    sides, done = (iterate_lines(source, max_line_bytes), iterate_lines(target, max_line_bytes)), 0
    for left, right in batch_lines(*sides):
        if len(left) != len(right):
            counts = [
                done + len(lines) + sum(1 for _ in side) for lines, side in zip((left, right), sides, strict=True)
            ]
            raise UnequalCounts(source, target, (counts[0], counts[1]))
        yield RawPairs(left, right, range(done + 1, done + len(left) + 1))
        done += len(left)


def read_one_file(path: Path, max_line_bytes: int) -> Iterator[RawPairs]:
    """Pair nothing with every line of a file."""
    done = 0
    for (lines,) in batch_lines(iterate_lines(path, max_line_bytes)):
        yield RawPairs([""] * len(lines), lines, range(done + 1, done + len(lines) + 1))
        done += len(lines)


def _read_records(path: Path, max_bytes: int, parse: Callable[[bytes], tuple[Any, Any]]) -> Iterator[RawPairs]:
    """One record per line; `parse` returns its two sides or raises a ValueError with the reason."""
    done = 0
    for (lines,) in batch_lines(iterate_lines(path, max_bytes)):
        sources: list[Any] = list(lines)  # unparsable lines stay, to be shown
        raw = RawPairs(sources, targets := [None] * len(lines), range(done + 1, done + len(lines) + 1))
        for number, line in enumerate(lines):
            try:
                if len(line) > max_bytes:
                    raise ValueError(f"longer than {max_bytes:,} bytes")
                sources[number], targets[number] = parse(line)
            except UnicodeDecodeError as error:
                raw.reasons[number] = f"not UTF-8 at byte {error.start + 1}"
            except ValueError as error:
                raw.reasons[number] = str(error)
        yield raw
        done += len(lines)


def read_table(path: Path, source: str, target: str, max_line_bytes: int, selection: Selection) -> Iterator[RawPairs]:
    """Two columns of a TSV, CSV or XLSX; by default, those that look like the pair."""
    table = open_table(path, selection, max_line_bytes)
    layout = detect_layout(table, source, target, selection)
    return batch_records(islice(table.records, layout.has_header, None), table, layout)


def batch_records(records: Iterator[Record], table: Table, layout: Layout) -> Iterator[RawPairs]:
    """The pairs of a table, in blocks of up to MAX_BLOCK_ROWS rows and about BLOCK_BYTES."""
    left, right = layout.columns
    first, last = sorted(layout.columns)
    raw, size = RawPairs([], [], [], layout=layout.describe()), 0
    for line, fields, reason in records:
        if reason is None and last >= len(fields):
            delimiter = DELIMITERS.get(table.delimiter, "second cell")
            is_single = len(fields) < 2 and (first, last) == (0, 1)
            reason = f"no {delimiter} between source and target" if is_single else f"no column {last + 1}"
        if reason is None:
            texts = [fields[column].encode(errors="surrogateescape") for column in (left, right)]
            size += len(texts[0]) + len(texts[1])
        else:
            texts = [table.delimiter.join(fields).encode(errors="surrogateescape"), b""]
            raw.reasons[len(raw.lines)] = reason
        raw.source.append(texts[0])  # type: ignore[attr-defined]
        raw.target.append(texts[1])  # type: ignore[attr-defined]
        raw.lines.append(line)  # type: ignore[attr-defined]
        if len(raw.lines) == MAX_BLOCK_ROWS or size >= BLOCK_BYTES:
            yield raw
            raw, size = RawPairs([], [], []), 0
    if raw.lines:
        yield raw


# Common names of the two sides in JSON and Parquet.
SIDE_NAMES = (
    ("source", "target"),
    ("src", "tgt"),
    ("q", "translatedText"),
    ("image", "caption"),
    ("audio", "transcript"),
    ("graph", "label"),
    ("file_name", "text"),
)


def side_names(source: str, target: str, selection: Selection) -> tuple[tuple[str, ...], ...]:
    """The pairs of names under which the two sides may be stored, the most likely first."""
    return (selection.columns,) if selection.columns else (*SIDE_NAMES, (source, target))


def sides_of_record(record: Any, names: Sequence[Sequence[str]]) -> tuple[Any, Any]:
    """The two sides of a record: {"source", "target"}, other names for them, or {"translation": {"en", "de"}}."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object with a source and a target")
    record = record["translation"] if isinstance(record.get("translation"), dict) else record
    for pair in names:
        if all(name in record for name in pair):
            return record[pair[0]], record[pair[1]]
    expected = dict.fromkeys(f"`{' and `'.join(f'{name}`' for name in pair)}" for pair in (names[0], names[-1]))
    raise ValueError(f"the keys are {', '.join(map(str, list(record)[:6]))}; expected {', or '.join(expected)}")


def read_jsonl(path: Path, source: str, target: str, max_line_bytes: int, selection: Selection) -> Iterator[RawPairs]:
    """One JSON object per line."""
    names = side_names(source, target, selection)

    def parse(line: bytes) -> tuple[Any, Any]:
        try:
            record = json.loads(line.decode())
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        return sides_of_record(record, names)

    return _read_records(path, 8 * max_line_bytes, parse)


def read_tmx(
    path: Path,
    source: str,
    target: str,
    max_line_bytes: int,  # noqa: ARG001  # checked later
    selection: Selection,
) -> Iterator[RawPairs]:
    """Translation Memory eXchange 1.4; `pt` matches pt-BR; inline tags are removed, their text is kept."""
    if selection.columns:
        raise DataError(f"{path} is a translation memory, which has no columns: choose the languages with --pair")
    languages = TmxLanguages(path, source, target)
    raw = RawPairs([], [], [])
    for number, unit in enumerate(iterate_units(path), 1):
        left, right = languages.texts(unit)
        if left is None or right is None:
            raw.reasons[len(raw.lines)] = f"no {source if left is None else target} in this unit"
        raw.source.append(left)  # type: ignore[attr-defined]
        raw.target.append(right)  # type: ignore[attr-defined]
        raw.lines.append(number)  # type: ignore[attr-defined]
        if len(raw.lines) == MAX_BLOCK_ROWS:
            yield raw
            raw = RawPairs([], [], [])
    languages.check_used()
    if raw.lines:
        raw.layout = languages.describe()
        yield raw


def read_parquet(
    path: Path,
    source: str,
    target: str,
    max_line_bytes: int,  # noqa: ARG001  # checked later
    selection: Selection,
) -> Iterator[RawPairs]:
    """Columns `source` and `target`, other names for them, or a column `translation` of structs."""
    require("polars", extra="corpus", whose=f"reading {path.name}")
    import polars

    if path != strip_compression_suffix(path):
        raise DataError(f"{path}: Parquet files must not be compressed again; decompress it first")
    try:
        table = polars.scan_parquet(path, glob=False)
        names = set(table.collect_schema().names())
        if "translation" in names:
            table = table.unnest("translation")
            names = set(table.collect_schema().names())
        pair = next((pair for pair in side_names(source, target, selection) if names.issuperset(pair)), None)
        if pair is None:
            raise DataError(
                f"{path} has the columns {', '.join(sorted(names))}: choose two of them by name, source first, for "
                "example: --columns english,german"
            )
        num_rows = 4 * MAX_BLOCK_ROWS  # each slice is read from the beginning of the file
        for begin in count(0, num_rows):
            rows = table.select(pair).slice(begin, num_rows).collect()
            if not rows.height:
                return
            sides = [rows[name].to_list() for name in pair]
            yield RawPairs(sides[0], sides[1], range(begin + 1, begin + rows.height + 1))
    except (polars.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None


READERS: dict[str, Callable[[Path, str, str, int, Selection], Iterator[RawPairs]]] = {
    **dict.fromkeys(TABLES, read_table),
    ".jsonl": read_jsonl,
    ".tmx": read_tmx,
    ".parquet": read_parquet,
}
PAIR_FORMATS = f"{', '.join(list(READERS)[:-1])} or {list(READERS)[-1]}"


# -------------------------------------------------------------------------------------------------------- decoding


def decode_pairs(raw: RawPairs, files: tuple[Path, ...], max_line_bytes: int) -> Block:
    """Decode pairs; reject invalid ones."""
    block = decode_valid_pairs(raw, files, max_line_bytes)
    block.layout = raw.layout
    if len(files) == 1:
        block.broken_lines = [
            line for *texts, line in zip(raw.source, raw.target, raw.lines, strict=True) if has_line_break(texts)
        ]
    return block


def has_line_break(texts: Iterable[Any]) -> bool:
    return any(
        (isinstance(text, bytes) and b"\n" in text.rstrip()) or (isinstance(text, str) and "\n" in text.rstrip())
        for text in texts
    )


def decode_valid_pairs(raw: RawPairs, files: tuple[Path, ...], max_line_bytes: int) -> Block:
    source, target = decode_side(raw.source, max_line_bytes), decode_side(raw.target, max_line_bytes)
    if source is not None and target is not None and not raw.reasons:
        return Block(source, target, list(raw.lines))
    block = Block()
    for number, (left, right, line) in enumerate(zip(raw.source, raw.target, raw.lines, strict=True)):
        reason = raw.reasons.get(number)
        for side, path in ((left, files[0]), (right, files[-1])):
            reason = reason or reject_reason(side, max_line_bytes)
            if reason:
                block.rejects.append(Reject(str(path), line, escape_invisible(reason), printable_head(side)))
                break
        else:
            block.source.append(decode_text(left))
            block.target.append(decode_text(right))
            block.lines.append(line)
    return block


def decode_side(texts: Sequence[Any], max_line_bytes: int) -> list[str] | None:
    """Decode a whole side; None if any text is invalid, which is rare."""
    try:
        decoded = [decode_text(text) for text in texts]
    except (UnicodeError, TypeError):
        return None
    if max(map(len, texts), default=0) > max_line_bytes or any("\0" in text for text in decoded):
        return None
    if not all(isinstance(text, bytes) for text in texts):
        return None if any(reject_reason(text, max_line_bytes) for text in texts) else decoded
    return decoded


def decode_text(text: Any) -> str:
    """Decode bytes strictly; newlines (from a parser) become spaces, because a sentence is one line."""
    if not isinstance(text, bytes | str):
        raise TypeError(f"not text but {type(text).__name__}")
    return (text.decode() if isinstance(text, bytes) else text).replace("\n", " ")


def reject_reason(text: Any, max_line_bytes: int) -> str | None:
    """Why a line cannot be read; None if it can."""
    if not isinstance(text, bytes | str):
        return "missing" if text is None else f"not text but {type(text).__name__}"
    try:
        data = text if isinstance(text, bytes) else text.encode()
        if len(data) > max_line_bytes:
            return f"longer than {max_line_bytes:,} bytes"
        data.decode()
    except UnicodeEncodeError:
        return "a lone surrogate, which is half a character"
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1}"
    return "a NUL character" if b"\0" in data else None


def printable_head(text: Any) -> str:
    """The beginning of a rejected line, safe to print."""
    head = text.decode(errors="backslashreplace") if isinstance(text, bytes) else str(text if text is not None else "")
    return escape_invisible(head[:80])


def read_pairs(
    files: Sequence[str | Path],
    source: str,
    target: str,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_reject_share: float = 1.0,
    columns: Sequence[str] = (),
    sheet: str | None = None,
) -> Iterator[Block]:
    """Blocks of at most MAX_BLOCK_ROWS pairs, in order; raises a DataError if there are too many rejects.

    `columns` are the two columns of a table, or keys of records: numbers from 1, or names. `sheet` is a sheet of a
    workbook; by default, the first.
    """
    paths = resolve_files(files, source, target)
    if len(paths) == 2 and (columns or sheet):
        raise DataError(f"{paths[0]} and {paths[1]} are text files without columns: remove `columns` and `sheet`")
    if source == NO_SOURCE:
        raw_blocks = read_one_file(paths[0], max_line_bytes)
    elif len(paths) == 2:
        raw_blocks = read_two_files(paths[0], paths[1], max_line_bytes)
    else:
        selection = Selection(tuple(columns), sheet)
        raw_blocks = READERS[pair_format(paths[0]) or ""](paths[0], source, target, max_line_bytes, selection)
    num_read, num_rejected, first = 0, 0, None
    for raw in raw_blocks:
        block = decode_pairs(raw, paths, max_line_bytes)
        num_read, num_rejected = num_read + len(raw.lines), num_rejected + len(block.rejects)
        first = first or next(iter(block.rejects), None)
        yield block
    if first and num_rejected > max(TOLERATED_REJECTS, max_reject_share * num_read):
        latin = f"If the file is Latin-1, convert it with: iconv -f LATIN1 -t UTF-8 {first.file} > {first.file}.utf8"
        advice = latin if first.reason.startswith("not UTF-8") else "To list all such lines, type: heedful check FILES"
        raise DataError(
            f"{num_rejected:,} of {num_read:,} lines cannot be read, more than data.max_reject_share = "
            f"{max_reject_share:g}; the first is {first.file}:{first.line}: {first.reason}: {first.sample!r}. {advice}"
        )


def read_corpus(corpus: "CorpusSettings", settings: "Settings") -> Iterator[Block]:
    """Blocks of a corpus of a heedful.toml."""
    return read_pairs(
        corpus.files,
        settings.source,
        settings.target,
        max_line_bytes=settings.data.max_line_bytes,
        columns=corpus.columns,
        sheet=corpus.sheet,
    )


def write_rejects(stream: TextIO, rejects: Iterable[Reject]) -> None:
    stream.writelines(json.dumps(asdict(reject), ensure_ascii=False) + "\n" for reject in rejects)
