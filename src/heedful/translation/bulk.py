r"""Translate a file of any size, line by line, with the shard runner. A repeated call resumes.

    from heedful.translation.bulk import translate_file
    translate_file("my-model-int8", "news.en", "news.de")

    news.en               split at bytes 0, b, 2b, ...: a line belongs to the piece that contains its first byte
    news.de.parts/00017/  the translations of piece 17: a shard, written atomically
    news.de               all pieces, concatenated and renamed; then the parts are removed

b = max(MIN_PIECE_BYTES, size / MAX_PIECES), so the boundaries depend only on the file size: planning does not read the
file, a piece reads its own bytes and at most one line on either side, and joining copies every byte once. Memory is
proportional to a piece; the disk needs space for two copies of the translations while they are joined. A compressed
file (.gz, .zst) cannot be read from the middle: one process decompresses it once, next to the output.

Because of rounding, a translation can depend on the other lines of its batch, the engine and the number of threads. All
of these are fixed: windows start at the beginning of a piece, and every worker has one thread. So the output is
bit-identical for any number of workers, on one machine or a cluster, on processors of the same kind.
"""

import json
import os
import shutil
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from platform import node
from typing import Any, BinaryIO, cast

from heedful.bundle import INNER_FOLDER, find_bundle, is_export, open_bundle, open_export
from heedful.corpus.launchers import Launcher, LocalLauncher
from heedful.corpus.runner import run_stage
from heedful.corpus.shards import CodeVersions, Shard, ShardRecord, hash_code, hash_inputs, hash_values
from heedful.corpus.text_files import (
    CHUNK_BYTES,
    explain_read_errors,
    open_decompressed,
    reject_binary,
    reject_structured,
    reject_zero_bytes,
    strip_compression_suffix,
)
from heedful.data.prepare import ProgressCallback, StageProgress
from heedful.data.store import MANIFEST
from heedful.engines.base import Engine
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.files import file_sha256, lock_file, sync_path
from heedful.text.normalize import decode_line
from heedful.translation.loading import load
from heedful.translation.sources import require_text_source
from heedful.translation.translator import TranslationOptions, Translator
from heedful.types import translation_to_dict

BULK_VERSION = 2  # increase it when a code change changes the output: older pieces are then recomputed
MIN_PIECE_BYTES = 1 << 19  # a few thousand lines, so the overhead of a shard is small
MAX_PIECES = 1 << 14  # larger files have larger pieces
CHECKED_BYTES = 4096  # at the beginning of a file, to recognize what is not text
WINDOW_LINES = 2000  # sorted by length and translated together
MARKER_FILE, DONE_FILE, TEXT_FILE, JOINED_FILE = ".heedful", "done.json", "text", "whole"
ENGINE_PACKAGES = {  # their versions are part of a piece's hash
    "torch": ("torch",),
    "ctranslate2": ("ctranslate2",),
    "hugging_face": ("torch", "transformers"),
    "onnx": ("onnxruntime",),
}


@dataclass(frozen=True, slots=True)
class BulkSummary:
    """Line counts of a translated file."""

    lines: int
    blank: int = 0
    replaced: int = 0  # lines that were not UTF-8
    flags: Mapping[str, int] = field(default_factory=dict)  # such as "output numbers" -> number of lines
    new_lines: int = 0  # translated by this call, not by an earlier one


def translate_file(
    model: str | Path,
    source: str | Path,
    output: str | Path,
    *,
    beam: int | None = None,
    length_penalty: float | None = None,
    prefix: str = "",
    tag: str | None = None,
    split_sentences: bool | None = None,
    suppress_words: Sequence[str] | None = None,
    as_json: bool = False,
    as_text: bool = False,
    launcher: Launcher | None = None,
    progress: ProgressCallback = lambda _step: None,
) -> BulkSummary:
    """Write the translation of line k of `source` to line k of `output`; options as in `TranslationOptions`.

    `as_text` also accepts files such as .html and .json, whose markup and keys are then translated as words.
    If the process is killed, the same call resumes. It starts over if the input, model, options or version changed.
    """
    source, output = Path(source).absolute(), Path(output).absolute()
    check_paths(source, output, as_text)
    search: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "prefix": prefix, "tag": tag,
        "split_sentences": split_sentences, "suppress_words": suppress_words,
    }  # fmt: skip
    engine = check_model(model, TranslationOptions(**search))
    versions = CodeVersions(BULK_VERSION, ("heedful", "numpy", "sentencepiece", *ENGINE_PACKAGES[engine]))
    settings: dict[str, Any] = {
        "model": str(Path(model).resolve()),
        "model_hash": hash_model(model),
        "search": search,
        "as_json": as_json,
    }
    key = hash_values([hash_inputs(Shard("all", (source,), output)), hash_code(translate_piece, settings, versions)])
    parts = output.with_name(f"{output.name}.parts")
    if output.exists():
        return finish_earlier_run(output, parts, key)
    launcher = launcher or LocalLauncher(count_cores())
    with lock_parts(parts), launcher.connect():
        (parts / DONE_FILE).unlink(missing_ok=True)
        text = decompress_once(source, parts, progress)
        shards, settings["piece_bytes"] = plan_pieces(text, parts)
        rows, new_lines = translate_pieces(text, shards, settings, versions, launcher, progress)
        summary = summarize(rows, new_lines)
        join_pieces(shards, rows, output, {"key": key, "summary": asdict(summary)})
        remove_pieces(parts)
    return summary


# --------------------------------------------------------------------------------------------------------- checks


def check_paths(source: Path, output: Path, as_text: bool) -> None:
    """Raise an error if `source` cannot be read or `output` cannot be written, before any work is done."""
    if source.is_dir():
        raise ConfigError(
            f"{source} is a directory, but --bulk translates one file: run the command once for each file"
        )
    if not source.is_file():
        raise ConfigError(f"there is no file {source}; --bulk reads a file. To read a pipe, omit --bulk")
    if output.is_dir():
        raise ConfigError(f"{output} is a directory: pass the name of the file to write the translations to")
    if not output.parent.is_dir():
        raise ConfigError(f"there is no directory {output.parent} for {output.name}; create it first")
    if source.resolve() == output.resolve() or (output.exists() and source.samefile(output)):
        raise ConfigError(f"{source} is both input and output; choose another file for the translations")
    with explain_read_errors(source), open_decompressed(source) as stream:
        head = stream.read(CHECKED_BYTES)
    if head[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
        raise DataError(f"{source} is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8 {source} > {source}.utf8")
    reject_binary(head, source)
    reject_zero_bytes(head, source)
    if not as_text:
        reject_structured(source)


def check_model(model: str | Path, options: TranslationOptions) -> str:
    """Verify the files of a model and that it supports the options; return its engine."""
    export = open_export(model) if is_export(Path(model)) else None
    bundle = export.bundle if export else open_bundle(model)
    require_text_source(bundle, "bulk translation")
    translator = Translator(bundle, cast(Engine, None))  # for checks only
    translator.search_options(options)
    translator.make_segments([], options, 0)
    return export.manifest.engine if export else "torch"


def hash_model(model: str | Path) -> str:
    """The hash of a model's manifest, which contains the hashes of its files."""
    folder = Path(model).resolve()
    return file_sha256((folder / INNER_FOLDER if is_export(folder) else find_bundle(folder)) / MANIFEST)


def count_cores() -> int:
    """The number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def lock_parts(parts: Path) -> Iterator[None]:
    """Create the directory for finished pieces and lock it for this process; at the end, remove it if it is empty."""
    if parts.exists() and not (parts / MARKER_FILE).is_file():
        raise ConfigError(f"{parts} exists, but is needed for finished pieces. Move it, or choose another output file")
    parts.mkdir(exist_ok=True)
    locked = False
    try:
        with (parts / MARKER_FILE).open("a") as stream:
            lock_file(stream, parts, "heedful translate --bulk")
            locked = True
            yield
    finally:
        if locked and {path.name for path in parts.iterdir()} <= {MARKER_FILE, DONE_FILE}:
            shutil.rmtree(parts)


# --------------------------------------------------------------------------------------------------------- pieces


def decompress_once(source: Path, parts: Path, progress: ProgressCallback) -> Path:
    """The file that pieces are read from: the source itself or, if it is compressed, a shard with its text."""
    if strip_compression_suffix(source) == source:
        return source
    shard = Shard("unpacked", (source,), parts / "unpacked")
    progress(StageProgress("unpack", 0, 1, 0))
    run_stage(decompress, [shard], {}, CodeVersions(BULK_VERSION, ()))
    progress(StageProgress("unpack", 1, 1, 0))
    return shard.output


def decompress(shard: Shard, folder: Path) -> Mapping[str, int]:
    """Stage: decompress a file."""
    (path,) = shard.inputs
    with explain_read_errors(path), open_decompressed(path) as stream, (folder / TEXT_FILE).open("wb") as output:
        shutil.copyfileobj(stream, output, CHUNK_BYTES)
    return {}


def plan_pieces(text: Path, parts: Path) -> tuple[list[Shard], int]:
    """The pieces, and the number of bytes from the start of one to the start of the next."""
    size = (text / TEXT_FILE if text.is_dir() else text).stat().st_size
    piece_bytes = max(MIN_PIECE_BYTES, -(-size // MAX_PIECES))
    names = [f"{number:05}" for number in range(-(-size // piece_bytes))]
    return [Shard(name, (text,), parts / name) for name in names], piece_bytes


def read_lines(stream: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    r"""Every line that starts at a byte in [start, end), without its \n: a line starts at byte 0 or after a \n."""
    stream.seek(max(0, start - 1))
    if start and not stream.readline(end - start).endswith(b"\n"):
        return  # the whole piece is inside one line
    while stream.tell() < end and (line := stream.readline()):
        yield line.removesuffix(b"\n")


def translate_pieces(
    text: Path,
    shards: Sequence[Shard],
    settings: Mapping[str, Any],
    versions: CodeVersions,
    launcher: Launcher,
    progress: ProgressCallback,
) -> tuple[list[ShardRecord], int]:
    """The records of all pieces, and the number of lines that this call translated."""
    input_hash = hash_inputs(Shard("all", (text,), text))
    done = lines = 0
    lines_before: int | None = None  # in pieces that were already finished; None if all were

    def count(row: ShardRecord) -> None:
        nonlocal done, lines
        done, lines = done + 1, lines + row.counts["lines"]
        progress(StageProgress("translate", done, len(shards), lines))

    def begin() -> None:
        nonlocal lines_before
        lines_before = lines

    progress(StageProgress("translate", 0, len(shards), 0))
    try:
        rows = run_stage(
            translate_piece, shards, settings, versions, launcher=launcher, on_done=count, before_changes=begin
        )
    finally:
        WORKER_MODEL.close()  # a single worker runs in this process
    if {row.inputs for row in rows} | {hash_inputs(Shard("all", (text,), text))} != {input_hash}:
        raise DataError(f"{text} changed while it was translated; repeat the command to start over")
    return rows, 0 if lines_before is None else lines - lines_before


def translate_piece(
    shard: Shard,
    folder: Path,
    *,
    model: str,
    model_hash: str,
    search: Mapping[str, Any],
    as_json: bool,
    piece_bytes: int,
) -> Mapping[str, int]:
    """Stage: translate the lines of one piece."""
    translator = WORKER_MODEL.open(model, model_hash)
    (path,) = shard.inputs
    start = int(shard.name) * piece_bytes
    counts = Counter({"lines": 0, "blank": 0, "replaced": 0})
    # Tokens would need a second pass in CTranslate2; confidence needs them.
    options = TranslationOptions(**search, tokens=as_json, confidence=as_json)
    with (path / TEXT_FILE if path.is_dir() else path).open("rb") as stream, (folder / TEXT_FILE).open("wb") as output:
        windows = decode_windows(read_lines(stream, start, start + piece_bytes), counts)
        for translation in translator.stream(windows, options):
            as_dict = translation_to_dict(translation) if as_json else None
            line = json.dumps(as_dict, ensure_ascii=False) if as_json else translation.text
            output.write(line.encode() + b"\n")
            counts.update({f"{flag.side} {flag.name}" for flag in translation.flags})
    return counts


class WorkerModel:
    """The translator of a worker process: opened for its first piece, kept for the others."""

    def __init__(self) -> None:
        self.model_hash = ""
        self.translator: Translator | None = None

    def open(self, model: str, model_hash: str) -> Translator:
        """The translator of this model; HeedfulError if the model has another hash."""
        if self.translator is None or self.model_hash != model_hash:
            if hash_model(model) != model_hash:
                raise HeedfulError(
                    f"{model} on {node()} is not the model that the command started with. Use the same model on all "
                    "machines, and do not change it during a run"
                )
            self.translator, self.model_hash = load(model, threads=1), model_hash
        return self.translator

    def close(self) -> None:
        self.translator = None


WORKER_MODEL = WorkerModel()  # of this process


def decode_windows(lines: Iterator[bytes], counts: Counter[str]) -> Iterator[list[str]]:
    """Decode lines into windows that are translated together; update the counts."""
    while window := [decode_line(line) for line in islice(lines, WINDOW_LINES)]:
        counts["lines"] += len(window)
        counts["blank"] += sum(not text.strip() for text, _ in window)
        counts["replaced"] += sum(not is_utf8 for _, is_utf8 in window)
        yield [text for text, _ in window]


# --------------------------------------------------------------------------------------------------------- output


def summarize(rows: Iterable[ShardRecord], new_lines: int) -> BulkSummary:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.counts)
    lines, blank, replaced = (total.pop(name, 0) for name in ("lines", "blank", "replaced"))
    return BulkSummary(lines, blank, replaced, dict(total.most_common()), new_lines)


def join_pieces(shards: Sequence[Shard], rows: Sequence[ShardRecord], output: Path, record: Mapping[str, Any]) -> None:
    """Concatenate all pieces and rename the result to `output`; `record` is written first, for a repeated call."""
    parts = output.with_name(f"{output.name}.parts")
    try:
        with (parts / JOINED_FILE).open("wb") as joined:
            for shard in shards:
                with (shard.output / TEXT_FILE).open("rb") as piece:
                    shutil.copyfileobj(piece, joined, CHUNK_BYTES)
            size = joined.tell()
        if size != sum(row.files[TEXT_FILE] for row in rows):
            raise HeedfulError(f"the pieces in {parts} changed while they were joined. Repeat the command")
        (parts / DONE_FILE).write_text(json.dumps({"size": size, **record}), encoding="utf-8")
        for path in (parts / JOINED_FILE, parts / DONE_FILE, parts):
            sync_path(path)
        if output.exists():
            raise ConfigError(
                f"another process created {output}. Move it and repeat the command: finished pieces are kept"
            )
        (parts / JOINED_FILE).rename(output)
        sync_path(output.parent)
    except OSError as error:
        raise HeedfulError(
            f"{error.strerror or error} ({error.filename or parts}) while {output.name} was joined. Fix "
            "the cause and rerun the command: finished pieces are kept."
        ) from error


def finish_earlier_run(output: Path, parts: Path, key: str) -> BulkSummary:
    """The summary of a call with the same key that was killed after it wrote `output`, else ConfigError."""
    try:
        done = json.loads((parts / DONE_FILE).read_text(encoding="utf-8"))
        is_ours = (done["key"], done["size"]) == (key, output.stat().st_size)
    except (OSError, ValueError, TypeError, KeyError):
        is_ours = False
    if not is_ours:
        raise ConfigError(
            f"{output} exists already; --bulk never overwrites a file. Move it, or choose another output file"
        )
    with lock_parts(parts):
        remove_pieces(parts)
    return replace(BulkSummary(**done["summary"]), new_lines=0)


def remove_pieces(parts: Path) -> None:
    """Remove the pieces; `lock_parts` removes the directory and the record of the finished run."""
    for path in parts.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
