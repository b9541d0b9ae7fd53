r"""Read pairs from what people have: two line-aligned files, TSV, JSONL, TMX, Parquet; plain, .gz or .zst.

    for block in read(["train.en", "train.de"], "en", "de"):
        block.source, block.target, block.lines, block.rejects

A line ends at the byte \n and nowhere else: Python's text mode also splits at \r, and `splitlines` at ten more
characters, which silently shifts one side against the other. Bytes are decoded strictly, by us, before anything else
sees them. A line that cannot be read takes its partner with it into the rejects, with its number and the reason; the
lines around it stay paired.
"""

import gzip
import io
import json
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any, TextIO
from xml.etree import ElementTree

from heedful.errors import DataError, did_you_mean, require
from heedful.text.normalize import escape_invisible

CHUNK = 1 << 18  # bytes read at a time
ROWS, BYTES = 1 << 12, 1 << 22  # of a block, at most and about: few pairs where they are long
FEW = 3  # rejects that even a small file may have
LONGEST = 1 << 16  # bytes: a longer line is rejected unread
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SAVED = "save its text as plain UTF-8, one sentence a line"
FOREIGN = {  # how files begin that are not text, and what to do about them
    b"\x1f\x8b\x08": "packed by gzip; let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "packed by zstd; let its name end in .zst",
    b"PK\x03\x04": f"a ZIP archive, as .docx and .xlsx are; unpack it, or {SAVED}",
    b"\xd0\xcf\x11\xe0": f"a document of an office program; {SAVED}",
    b"%PDF-": f"a PDF; {SAVED}",
}


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that could not be read, and why."""

    file: str
    line: int  # from 1
    reason: str
    sample: str  # how it begins


@dataclass(slots=True)
class Block:
    """Some pairs in the order of their file, and what was rejected among them."""

    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # of each pair, from 1
    rejects: list[Reject] = field(default_factory=list)


class UnequalCounts(DataError):
    """Two files that should be line-aligned have different numbers of lines."""

    def __init__(self, source: Path, target: Path, counts: tuple[int, int]) -> None:
        super().__init__(source, target, counts)
        self.source, self.target, self.counts = source, target, counts

    def __str__(self) -> str:
        """What, where, and where to look."""
        command = shlex.join(["heedful", "check", str(self.source), str(self.target)])
        return (
            f"{self.source} has {self.counts[0]:,} lines and {self.target} has {self.counts[1]:,}: they are not "
            f"line-aligned. Type: {command}   to see where they part"
        )


# ---------------------------------------------------------------------------------------------------------- files


def paired(files: Sequence[str | Path], source: str, target: str) -> tuple[Path, ...]:
    """The files of a corpus: (source, target), or one file that holds both.

    "data/train" stands for data/train.SOURCE and data/train.TARGET, with .gz or .zst behind; two files are put in
    order by their suffixes where both have the language's.
    """
    paths = [Path(file) for file in files]
    if len(paths) == 1 and not kind(paths[0]):
        paths = [sibling(paths[0], language) for language in (source, target)]
    if len(paths) > 2:
        raise DataError(f"a corpus is one file or two, not {len(paths)}; make each pair of files a corpus of its own")
    if len(paths) == 2 and any(kind(path) for path in paths):
        raise DataError(f"{paths[0]} and {paths[1]} hold both languages each; make each of them a corpus of its own")
    for path in paths:
        if not path.is_file():
            raise DataError(f"there is no file {path}{nearest(path)}")
    if len(paths) == 2 and paths[0] == paths[1]:
        raise DataError(f"{paths[0]} is given as source and as target")
    if len(paths) == 2 and [language(path) for path in paths] == [target.lower(), source.lower()]:
        paths.reverse()
    return tuple(paths)


def nearest(path: Path) -> str:
    """What to append where a file is missing: one of like name beside it, or that there is no such folder."""
    if path.is_dir():
        return ", but a folder of that name: name the file in it"
    if not path.parent.is_dir():
        return f", as there is no folder {path.parent}"
    near = did_you_mean(path.name, [other.name for other in path.parent.glob("*")][:1000])
    return near if "did you mean" in near else ""


def sibling(stem: Path, language: str) -> Path:
    """data/train, "en" -> the one of data/train.en, .en.gz, .en.zst that exists."""
    names = [stem.with_name(f"{stem.name}.{language}{packed}") for packed in PACKED]
    for path in names:
        if path.is_file():
            return path
    if stem.is_file():
        raise DataError(
            f"{stem} is one file of a pair: name the other one too, or a .tsv, .jsonl, .tmx or .parquet with both sides"
        )
    raise DataError(
        f"{stem} is neither a .tsv, .jsonl, .tmx or .parquet file, nor is there a {names[0]} (or .gz, .zst): name two "
        "files, such as train.en and train.de, or one of those"
    )


def bare(path: Path) -> Path:
    """The path without .gz or .zst."""
    return path.with_suffix("") if path.suffix and path.suffix in PACKED else path


def kind(path: Path) -> str | None:
    """The line of READERS that reads this file alone."""
    suffix = bare(path).suffix.lower()
    return suffix if suffix in READERS else None


def language(path: Path) -> str:
    """The last suffix, which for one side of a pair is its language."""
    return bare(path).suffix.removeprefix(".").lower()


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked on the way."""
    stream: IO[bytes] = PACKED[path.suffix if path.suffix in PACKED else ""](path)
    return stream


def _open_zstandard(path: Path) -> Any:
    require("zstandard", extra="corpus", whose=f"reading {path.name}")
    return io.BufferedReader(Zstandard(path), CHUNK)


class Zstandard(io.RawIOBase):
    """The bytes of a .zst, frame after frame; unlike zstandard's own reader it notices a file that is cut short."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._frames = zstandard.ZstdDecompressor
        self._file, self._ready = path.open("rb"), b""
        self._frame: Any = None

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """A little at a time: a kilobyte may unpack into megabytes."""
        packed = b""
        while not self._ready:
            packed = packed or self._file.read(1024)
            if not packed and self._frame is None:
                return 0
            if not packed:
                raise EOFError("a compressed frame has no end")
            self._frame = self._frame or self._frames().decompressobj()
            self._ready, packed = self._frame.decompress(packed), b""
            if self._frame.eof:
                packed, self._frame = self._frame.unused_data, None
        if packed:
            self._file.seek(-len(packed), io.SEEK_CUR)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


PACKED: dict[str, Callable[[Path], Any]] = {
    "": lambda path: path.open("rb"),
    ".gz": gzip.open,
    ".zst": _open_zstandard,
}


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What can go wrong with a file while it is read, as an error that names it."""
    try:
        yield
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read to its end ({error}); it may be cut short or not be what its name says"
        ) from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise DataError(f"{path} cannot be unpacked: {error}") from None


def lines(path: Path, longest: int = LONGEST) -> Iterator[bytes]:
    r"""Every line of a file without its end (\n or \r\n), at most `longest` + 1 bytes of it."""
    return chain.from_iterable(_lines(path, longest))


def _lines(path: Path, longest: int) -> Iterator[list[bytes]]:
    begin, rest = True, b""
    with told(path), opened(path) as stream:
        while chunk := stream.read(CHUNK):
            if begin:
                chunk, begin = _beginning(chunk, path), False
            chunk = rest + chunk
            several = chunk.split(b"\n")
            rest = several.pop()[: longest + 2]  # no end in sight: enough to show that it is too long, even with \r
            if b"\r" in chunk:
                several = [line.removesuffix(b"\r") for line in several]
            if max(map(len, several), default=0) > longest:
                several = [line[: longest + 1] for line in several]
            yield several
    if rest:
        yield [rest.removesuffix(b"\r")[: longest + 1]]


def refuse_foreign(begin: bytes, path: Path) -> None:
    """An error where a file begins as no text does."""
    for mark, what in FOREIGN.items():
        if begin.startswith(mark):
            raise DataError(f"{path} is not text but {what}")


def _beginning(chunk: bytes, path: Path) -> bytes:
    refuse_foreign(chunk, path)
    if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is UTF-16. Type: iconv -f UTF-16 -t UTF-8 {path} > {path}.utf8   and use that")
    if b"\n" not in chunk and chunk.count(b"\r") > 2:
        raise DataError(
            f"the lines of {path} end in a lone \\r. Type: tr '\\r' '\\n' < {path} > {path}.lines   and use that"
        )
    return chunk.removeprefix(BYTE_ORDER_MARK)


# --------------------------------------------------------------------------------------------------------- pairs


@dataclass(slots=True)
class Raw:
    """Pairs before they are judged: bytes of files, or text from a parser; None where a parser gave up."""

    source: Sequence[bytes | str | None]
    target: Sequence[bytes | str | None]
    lines: Sequence[int]
    reasons: dict[int, str] = field(default_factory=dict)  # why a parser gave up, by position


def batches(*sides: Iterator[bytes], step: int = 64) -> Iterator[tuple[list[bytes], ...]]:
    """The next lines of every side, equally many while there are: ROWS, or fewer once they fill BYTES."""
    ended = False
    while not ended:
        batch: tuple[list[bytes], ...] = tuple([] for _ in sides)
        size = 0
        while not ended and len(batch[0]) < ROWS and size < BYTES:
            for some, side in zip(batch, sides, strict=True):
                more = list(islice(side, step))
                some += more
                size += sum(map(len, more))
                ended |= len(more) < step
        if any(batch):
            yield batch


def two_files(source: Path, target: Path, longest: int) -> Iterator[Raw]:
    """Line i of one file and line i of the other."""
    sides, done = (lines(source, longest), lines(target, longest)), 0
    for left, right in batches(*sides):
        if len(left) != len(right):
            counts = [done + len(some) + sum(1 for _ in side) for some, side in zip((left, right), sides, strict=True)]
            raise UnequalCounts(source, target, (counts[0], counts[1]))
        yield Raw(left, right, range(done + 1, done + len(left) + 1))
        done += len(left)


def _records(path: Path, longest: int, parse: Callable[[bytes], tuple[Any, Any]]) -> Iterator[Raw]:
    """One record a line; `parse` gives its two sides or raises a ValueError that says why not."""
    done = 0
    for (some,) in batches(lines(path, longest)):
        sides: list[Any] = list(some)  # a line that cannot be parsed stays, to be shown
        raw = Raw(sides, others := [None] * len(some), range(done + 1, done + len(some) + 1))
        for number, line in enumerate(some):
            try:
                if len(line) > longest:
                    raise ValueError(f"longer than {longest:,} bytes")
                sides[number], others[number] = parse(line)
            except UnicodeDecodeError as error:
                raw.reasons[number] = f"not UTF-8 at byte {error.start + 1}"
            except ValueError as error:
                raw.reasons[number] = str(error)
        yield raw
        done += len(some)


def tsv(path: Path, source: str, target: str, longest: int) -> Iterator[Raw]:  # noqa: ARG001  # the columns are in order
    """source TAB target [TAB anything]"""

    def parse(line: bytes) -> tuple[bytes, bytes]:
        sides = line.split(b"\t")
        if len(sides) < 2:
            raise ValueError("no tab between source and target")
        return sides[0], sides[1]

    return _records(path, 8 * longest, parse)


# What people call the two sides in JSON and Parquet.
NAMES = (("source", "target"), ("src", "tgt"), ("q", "translatedText"))


def sides_of(record: Any, source: str, target: str) -> tuple[Any, Any]:
    """The two sides of a record: {"source", "target"} by any of its names, or {"translation": {"en", "de"}}."""
    if not isinstance(record, dict):
        raise ValueError("not an object with a source and a target")
    record = record["translation"] if isinstance(record.get("translation"), dict) else record
    for pair in (*NAMES, (source, target)):
        if all(name in record for name in pair):
            return record[pair[0]], record[pair[1]]
    raise ValueError(
        f"neither `source` and `target` nor `{source}` and `{target}` among {', '.join(map(str, list(record)[:6]))}"
    )


def jsonl(path: Path, source: str, target: str, longest: int) -> Iterator[Raw]:
    """One JSON object a line."""

    def parse(line: bytes) -> tuple[Any, Any]:
        try:
            record = json.loads(line.decode())
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        return sides_of(record, source, target)

    return _records(path, 8 * longest, parse)


def tmx(path: Path, source: str, target: str, longest: int) -> Iterator[Raw]:  # noqa: ARG001  # judged later
    """Translation memory exchange 1.4, unit by unit; `pt` finds pt-BR; inline tags go, the text they mark stays."""
    raw, number = Raw([], [], []), 0
    for number, unit in enumerate(units(path), 1):
        left, right = variant(unit, source), variant(unit, target)
        if left is None or right is None:
            raw.reasons[len(raw.lines)] = f"no {source if left is None else target} in this unit"
        raw.source.append(left)  # type: ignore[attr-defined]
        raw.target.append(right)  # type: ignore[attr-defined]
        raw.lines.append(number)  # type: ignore[attr-defined]
        if len(raw.lines) == ROWS:
            yield raw
            raw = Raw([], [], [])
    if raw.lines:
        yield raw


def units(path: Path) -> Iterator[ElementTree.Element]:
    """The units of a translation memory, one by one."""
    try:
        with told(path), opened(path) as stream:
            events = ElementTree.iterparse(stream, events=("start", "end"))
            _, root = next(events)
            for event, element in events:
                if event == "end" and named(element) == "tu":
                    yield element
                    root.clear()  # what is read is forgotten, so that a memory of any size passes through
                elif event == "start" and named(element) == "body":
                    root = element
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # the last two: an encoding it does not know
        raise DataError(f"{path} is not well-formed TMX: {error}") from None


LANGUAGE_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")
INLINE = {"bpt", "ept", "it", "ph", "ut"}  # hold codes of another program, not text; <hi> and <sub> hold text


def named(element: ElementTree.Element) -> str:
    """The tag without its namespace."""
    return element.tag.rpartition("}")[2]


def variant(unit: Iterable[ElementTree.Element], wanted: str) -> str | None:
    """The segment in a language: the very one, else `pt` finds pt-BR and pt-BR finds pt, but never pt-PT."""
    found: dict[str, str] = {}
    for one in unit:
        code = next((one.attrib[name] for name in LANGUAGE_ATTRIBUTES if name in one.attrib), "")
        for segment in one:
            if named(segment) == "seg":
                found.setdefault(code.lower().replace("_", "-"), text_in(segment))
    wanted = wanted.lower().replace("_", "-")
    near = (text for code, text in found.items() if code.startswith(f"{wanted}-") or wanted.startswith(f"{code}-"))
    return found.get(wanted, next(near, None))


def text_in(segment: ElementTree.Element) -> str:
    """The text of a segment in its order, without that of codes; no recursion, as files may nest as they like."""
    texts, stack = [], [(segment, False)]
    while stack:
        element, left = stack.pop()
        if left:
            texts.append(element.tail or "")
            continue
        if element is not segment:
            stack.append((element, True))  # its tail comes after all that is inside
        if named(element) not in INLINE:
            texts.append(element.text or "")
            stack += [(child, False) for child in reversed(element)]
    return "".join(texts)


def parquet(path: Path, source: str, target: str, longest: int) -> Iterator[Raw]:  # noqa: ARG001  # judged later
    """Columns `source` and `target` by any of their names, or a column `translation` of structs."""
    require("polars", extra="corpus", whose=f"reading {path.name}")
    import polars

    if path != bare(path):
        raise DataError(f"Parquet is packed inside: unpack {path} first")
    try:
        table = polars.scan_parquet(path, glob=False)
        names = set(table.collect_schema().names())
        if "translation" in names:
            table = table.unnest("translation")
            names = set(table.collect_schema().names())
        pair = next((pair for pair in (*NAMES, (source, target)) if names.issuperset(pair)), None)
        if pair is None:
            raise DataError(
                f"{path}: neither `source` and `target` nor `{source}` and `{target}` among {', '.join(sorted(names))}"
            )
        rows = 4 * ROWS  # each slice is looked for from the beginning
        for begin in count(0, rows):
            some = table.select(pair).slice(begin, rows).collect()
            if not some.height:
                return
            sides = [some[name].to_list() for name in pair]
            yield Raw(sides[0], sides[1], range(begin + 1, begin + some.height + 1))
    except (polars.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None


READERS: dict[str, Callable[[Path, str, str, int], Iterator[Raw]]] = {
    ".tsv": tsv,
    ".jsonl": jsonl,
    ".tmx": tmx,
    ".parquet": parquet,
}


# -------------------------------------------------------------------------------------------------------- judging


def judged(raw: Raw, files: tuple[Path, ...], longest: int) -> Block:
    """What can be read of some pairs, and what must be rejected."""
    source, target = text_of(raw.source, longest), text_of(raw.target, longest)
    if source is not None and target is not None and not raw.reasons:
        return Block(source, target, list(raw.lines))
    block = Block()
    for number, (left, right, line) in enumerate(zip(raw.source, raw.target, raw.lines, strict=True)):
        wrong = raw.reasons.get(number)
        for side, path in ((left, files[0]), (right, files[-1])):
            wrong = wrong or fault(side, longest)
            if wrong:
                block.rejects.append(Reject(str(path), line, escape_invisible(wrong), shown(side)))
                break
        else:
            block.source.append(plain(left))
            block.target.append(plain(right))
            block.lines.append(line)
    return block


def text_of(side: Sequence[Any], longest: int) -> list[str] | None:
    """A whole side at once where nothing is wrong with it, which is the rule; None where something is."""
    try:
        texts = [plain(one) for one in side]
    except (UnicodeError, TypeError):
        return None
    if max(map(len, side), default=0) > longest or any("\0" in text for text in texts):
        return None
    if not all(isinstance(one, bytes) for one in side):
        return None if any(fault(one, longest) for one in side) else texts
    return texts


def plain(side: Any) -> str:
    """Bytes decoded strictly; a newline (a parser may give one) becomes a space, as a sentence is a line."""
    if not isinstance(side, bytes | str):
        raise TypeError(f"not text but {type(side).__name__}")
    return (side.decode() if isinstance(side, bytes) else side).replace("\n", " ")


def fault(side: Any, longest: int) -> str | None:
    """Why a line cannot be read; None when it can."""
    if not isinstance(side, bytes | str):
        return "missing" if side is None else f"not text but {type(side).__name__}"
    try:
        data = side if isinstance(side, bytes) else side.encode()
        if len(data) > longest:
            return f"longer than {longest:,} bytes"
        data.decode()
    except UnicodeEncodeError:
        return "a lone surrogate, which is half a character"
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1}"
    return "a NUL character" if b"\0" in data else None


def shown(side: Any) -> str:
    """The beginning of what was rejected, safe to print."""
    text = side.decode(errors="backslashreplace") if isinstance(side, bytes) else str(side if side is not None else "")
    return escape_invisible(text[:80])


def read(
    files: Sequence[str | Path], source: str, target: str, *, longest: int = LONGEST, reject_limit: float = 1.0
) -> Iterator[Block]:
    """Blocks of at most ROWS pairs, in order; too many rejects are a DataError that names the first of them."""
    paths = paired(files, source, target)
    raws = (
        two_files(paths[0], paths[1], longest)
        if len(paths) == 2
        else READERS[kind(paths[0]) or ""](paths[0], source, target, longest)
    )
    seen, rejected, first = 0, 0, None
    for raw in raws:
        block = judged(raw, paths, longest)
        seen, rejected = seen + len(raw.lines), rejected + len(block.rejects)
        first = first or next(iter(block.rejects), None)
        yield block
    if first and rejected > max(FEW, reject_limit * seen):
        latin = f"Latin-1? Type: iconv -f LATIN1 -t UTF-8 {first.file} > {first.file}.utf8   and use that"
        advice = latin if first.reason.startswith("not UTF-8") else "Type heedful check and the files, to see more"
        raise DataError(
            f"{rejected:,} of {seen:,} lines cannot be read, more than data.max_reject_share = {reject_limit:g}; the "
            f"first is {first.file}:{first.line}: {first.reason}: {first.sample!r}. {advice}"
        )


def write_rejects(stream: TextIO, rejects: Iterable[Reject]) -> None:
    """Lines of rejects.jsonl, an object each."""
    stream.writelines(json.dumps(asdict(reject), ensure_ascii=False) + "\n" for reject in rejects)
