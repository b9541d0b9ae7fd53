r"""A file of any size, translated line by line over the shard runner: every line once, resumed by repeating it.

    from heedful.translation.bulk import translate_file
    translate_file("my-model-int8", "news.en", "news.de")

    news.en               cut at bytes 0, b, 2b, ...: a line belongs to the piece that its first byte lies in
    news.de.parts/00017/  the translations of piece 17: a shard, which appears whole or not at all
    news.de               all of them, one after the other; it appears in one act, and then the parts go

b = max(SMALLEST, size / MOST), so where a piece ends depends on the size of the file alone: planning reads nothing, a
piece reads its own bytes and the rest of one line on either side, and joining copies every byte once. Time grows with
the lines, memory with a piece, the disk needs the translations twice while they are joined. A packed file (.gz, .zst)
cannot be entered in the middle: it is unpacked once, beside OUT, by one process.

What a line becomes may depend, by rounding, on the lines beside it, on the engine and on its number of threads. So all
these are fixed: the windows of a piece begin with it, and every worker has one thread. The same bytes come out for any
number of workers, here or on a cluster, on processors of one kind.
"""

import json
import os
import shutil
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from platform import node
from typing import Any, BinaryIO, cast

from heedful.bundle import digest, open_bundle, sync
from heedful.bundle import found as place_of
from heedful.corpus.launchers import Launcher, LocalLauncher
from heedful.corpus.runner import run_stage
from heedful.corpus.shards import CodeVersions, Shard, ShardRecord, hash_code, hash_inputs, hash_values
from heedful.corpus.text_files import CHUNK_BYTES, explain_read_errors, open_decompressed, strip_compression_suffix
from heedful.data.prepare import ProgressCallback, StageProgress, lock
from heedful.data.store import MANIFEST
from heedful.engines.base import Engine
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.exported import INNER, is_export, open_export
from heedful.text.normalize import decoded
from heedful.translation.translator import Options, Translator, load
from heedful.types import plain

SMALLEST = 1 << 19  # bytes of a piece: some thousand lines, so that making a shard of them costs little beside them
MOST = 1 << 14  # pieces; those of larger files are larger
WINDOW = 2000  # lines that are sorted by length and translated together
MARK, DONE, TEXT, WHOLE = ".heedful", "done.json", "text", "whole"
# Raise it with every change of what --bulk writes for the same model, input and options (a changed search, engine or
# tokenizer too): pieces of an interrupted run are then translated again. The version of heedful counts as well.
BULK_VERSION = 1
PACKAGES = {  # engine -> the packages that compute
    "torch": ("torch",),
    "ctranslate2": ("ctranslate2",),
    "hugging_face": ("torch", "transformers"),
    "onnx": ("onnxruntime",),
}


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a file."""

    lines: int
    blank: int = 0
    replaced: int = 0  # lines that were not UTF-8
    flags: Mapping[str, int] = field(default_factory=dict)  # "output numbers" -> how many lines have it
    made: int = 0  # lines translated in this call; the others were there from one before it


def translate_file(
    model: str | Path,
    given: str | Path,
    out: str | Path,
    *,
    beam: int | None = None,
    length_penalty: float | None = None,
    prefix: str = "",
    tag: str | None = None,
    as_json: bool = False,
    launcher: Launcher | None = None,
    progress: ProgressCallback = lambda _step: None,
) -> Summary:
    """Line k of `out` is the translation of line k of `given`; the options are those of `translate.Options`.

    Killed at any moment, the same call goes on where it was. Another input, model, option or version begins anew.
    """
    given, out = Path(given).absolute(), Path(out).absolute()
    check(given, out)
    search: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "prefix": prefix, "tag": tag}
    packages = PACKAGES[engine_of(model, Options(**search))]
    versions = CodeVersions(BULK_VERSION, ("heedful", "numpy", "sentencepiece", *packages))
    settings: dict[str, Any] = {
        "model": str(Path(model).resolve()),
        "identity": identity_of(model),
        "search": search,
        "as_json": as_json,
    }
    key = hash_values([hash_inputs(Shard("all", (given,), out)), hash_code(piece, settings, versions)])
    parts = out.with_name(f"{out.name}.parts")
    if out.exists():
        return found_whole(out, parts, key)
    launcher = launcher or LocalLauncher(cores())
    with owned(parts), launcher.connect():
        (parts / DONE).unlink(missing_ok=True)
        text = unpack_once(given, parts, progress)
        shards, settings["bytes_each"] = cut(text, parts)
        rows, made = translated(text, shards, settings, versions, launcher, progress)
        summary = summed(rows, made)
        join(shards, rows, out, {"key": key, "summary": asdict(summary)})
        clear(parts)
    return summary


# --------------------------------------------------------------------------------------------------------- before


def check(given: Path, out: Path) -> None:
    """That one can be read and the other be written, as far as that can be seen."""
    if given.is_dir():
        raise ConfigError(f"{given} is a folder; --bulk translates one file: give each of its files a run of its own")
    if not given.is_file():
        raise ConfigError(
            f"there is no file {given}; --bulk reads a file, and a pipe goes without it: heedful translate"
        )
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name the file that the translations go to")
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent} for {out.name}; make it first")
    if given.resolve() == out.resolve() or (out.exists() and given.samefile(out)):
        raise ConfigError(f"{given} is to be read and to be written; name another file for the translations")
    with explain_read_errors(given), open_decompressed(given) as stream:
        if stream.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise DataError(f"{given} is UTF-16. Type: iconv -f UTF-16 -t UTF-8 {given} > {given}.utf8   and use that")


def engine_of(model: str | Path, options: Options) -> str:
    """The engine of a model that was verified, and can follow the options."""
    export = open_export(model) if is_export(Path(model)) else None
    translator = Translator(export.bundle if export else open_bundle(model), cast(Engine, None))  # who is not asked
    translator.search(options)
    translator.segmented([], options, 0)
    return export.about.engine if export else "torch"


def identity_of(model: str | Path) -> str:
    """The hash of its manifest, which has the hashes of all its files (of an export: those that have them)."""
    folder = Path(model).resolve()
    return digest((folder / INNER if is_export(folder) else place_of(folder)) / MANIFEST)


def cores() -> int:
    """The processors that we may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def owned(parts: Path) -> Iterator[None]:
    """A folder that is nobody else's, and nobody else's at this time; where nothing was finished, it goes again."""
    if parts.exists() and not (parts / MARK).is_file():
        raise ConfigError(f"{parts} is in the way: finished pieces go there. Move it, or name another file to write")
    parts.mkdir(exist_ok=True)
    ours = False
    try:
        with (parts / MARK).open("a") as stream:
            lock(stream, parts, "heedful translate --bulk")
            ours = True
            yield
    finally:
        if ours and {path.name for path in parts.iterdir()} <= {MARK, DONE}:
            shutil.rmtree(parts)


# --------------------------------------------------------------------------------------------------------- pieces


def unpack_once(given: Path, parts: Path, progress: ProgressCallback) -> Path:
    """What the pieces are cut from: the file itself or, of a packed one, a shard that holds its text."""
    if strip_compression_suffix(given) == given:
        return given
    shard = Shard("unpacked", (given,), parts / "unpacked")
    progress(StageProgress("unpack", 0, 1, 0))
    run_stage(unpack, [shard], {}, CodeVersions(BULK_VERSION, ()))
    progress(StageProgress("unpack", 1, 1, 0))
    return shard.output


def unpack(shard: Shard, folder: Path) -> Mapping[str, int]:
    """The bytes of a packed file."""
    (path,) = shard.inputs
    with explain_read_errors(path), open_decompressed(path) as stream, (folder / TEXT).open("wb") as out:
        shutil.copyfileobj(stream, out, CHUNK_BYTES)
    return {}


def cut(text: Path, parts: Path) -> tuple[list[Shard], int]:
    """The pieces, and how many bytes each begins after the one before it."""
    size = (text / TEXT if text.is_dir() else text).stat().st_size
    bytes_each = max(SMALLEST, -(-size // MOST))
    names = [f"{number:05}" for number in range(-(-size // bytes_each))]
    return [Shard(name, (text,), parts / name) for name in names], bytes_each


def lines_of(stream: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    r"""Every line that begins at a byte in [begin, end), without its \n: a line begins at byte 0 or after a \n."""
    stream.seek(max(0, begin - 1))
    if begin and not stream.readline(end - begin).endswith(b"\n"):
        return  # all of it is the middle of one line
    while stream.tell() < end and (line := stream.readline()):
        yield line.removesuffix(b"\n")


def translated(
    text: Path,
    shards: Sequence[Shard],
    settings: Mapping[str, Any],
    versions: CodeVersions,
    launcher: Launcher,
    progress: ProgressCallback,
) -> tuple[list[ShardRecord], int]:
    """The rows of all pieces, and how many lines were translated for them now."""
    asked = hash_inputs(Shard("all", (text,), text))
    done = lines = 0
    stood: int | None = None  # lines that were there; all of them, if nothing had to be done

    def tell(row: ShardRecord) -> None:
        nonlocal done, lines
        done, lines = done + 1, lines + row.counts["lines"]
        progress(StageProgress("translate", done, len(shards), lines))

    def begin() -> None:
        nonlocal stood
        stood = lines

    progress(StageProgress("translate", 0, len(shards), 0))
    try:
        rows = run_stage(piece, shards, settings, versions, launcher=launcher, on_done=tell, before_changes=begin)
    finally:
        opened.cache_clear()  # one worker is this very process
    if {row.inputs for row in rows} | {hash_inputs(Shard("all", (text,), text))} != {asked}:
        raise DataError(f"{text} changed while it was translated: repeat the command, which begins anew")
    return rows, 0 if stood is None else lines - stood


def piece(
    shard: Shard, folder: Path, *, model: str, identity: str, search: Mapping[str, Any], as_json: bool, bytes_each: int
) -> Mapping[str, int]:
    """The lines of one piece, translated."""
    translator = opened(model, identity)
    (path,) = shard.inputs
    begin = int(shard.name) * bytes_each
    counts = Counter({"lines": 0, "blank": 0, "replaced": 0})
    options = Options(**search, tokens=as_json)  # without them, CTranslate2 asks its model once, not twice
    with (path / TEXT if path.is_dir() else path).open("rb") as stream, (folder / TEXT).open("wb") as out:
        windows = read(lines_of(stream, begin, begin + bytes_each), counts)
        for one in translator.stream(windows, options):
            line = json.dumps(plain(one), ensure_ascii=False) if as_json else one.text
            out.write(line.encode() + b"\n")
            counts.update({f"{flag.side} {flag.name}" for flag in one.flags})
    return counts


@lru_cache(maxsize=1)
def opened(model: str, identity: str) -> Translator:
    """The model, opened once by each process that has pieces to translate."""
    if identity_of(model) != identity:
        raise HeedfulError(
            f"{model} on {node()} is not the model that the command began with. Put the same on all machines, and "
            "change it only between two runs"
        )
    return load(model, threads=1)


def read(lines: Iterator[bytes], counts: Counter[str]) -> Iterator[list[str]]:
    """Lines as text, so many at a time as are translated together."""
    while some := [decoded(line) for line in islice(lines, WINDOW)]:
        counts["lines"] += len(some)
        counts["blank"] += sum(not text.strip() for text, _ in some)
        counts["replaced"] += sum(not whole for _, whole in some)
        yield [text for text, _ in some]


# ---------------------------------------------------------------------------------------------------------- after


def summed(rows: Iterable[ShardRecord], made: int) -> Summary:
    """What all pieces counted."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.counts)
    lines, blank, replaced = (total.pop(name, 0) for name in ("lines", "blank", "replaced"))
    return Summary(lines, blank, replaced, dict(total.most_common()), made)


def join(shards: Sequence[Shard], rows: Sequence[ShardRecord], out: Path, told_of_it: Mapping[str, Any]) -> None:
    """One file of all pieces, put in place in one act; before that, a note that this is what it is."""
    parts = out.with_name(f"{out.name}.parts")
    try:
        with (parts / WHOLE).open("wb") as whole:
            for shard in shards:
                with (shard.output / TEXT).open("rb") as one:
                    shutil.copyfileobj(one, whole, CHUNK_BYTES)
            size = whole.tell()
        if size != sum(row.files[TEXT] for row in rows):
            raise HeedfulError(f"the pieces in {parts} changed while they were joined. Repeat the command")
        (parts / DONE).write_text(json.dumps({"size": size, **told_of_it}), encoding="utf-8")
        for path in (parts / WHOLE, parts / DONE, parts):
            sync(path)
        if out.exists():
            raise ConfigError(f"{out} appeared meanwhile. Move it and repeat the command: finished pieces are kept")
        (parts / WHOLE).rename(out)
        sync(out.parent)
    except OSError as error:
        raise HeedfulError(
            f"{error.strerror or error} ({error.filename or parts}) while {out.name} was joined. Repair the cause and "
            "repeat the command: finished pieces are kept."
        ) from error


def found_whole(out: Path, parts: Path, key: str) -> Summary:
    """What an earlier run made of the same, if it was killed after it had put all in place; otherwise it is refused."""
    try:
        done = json.loads((parts / DONE).read_text(encoding="utf-8"))
        ours = (done["key"], done["size"]) == (key, out.stat().st_size)
    except (OSError, ValueError, TypeError, KeyError):
        ours = False
    if not ours:
        raise ConfigError(
            f"there is a file {out} already; --bulk never writes over one, and what it wrote is whole. Move it, or "
            "name another file to write"
        )
    with owned(parts):
        clear(parts)
    return replace(Summary(**done["summary"]), made=0)


def clear(parts: Path) -> None:
    """Remove the pieces; who owns the folder removes the rest, and with it the note that they are not needed."""
    for path in parts.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
