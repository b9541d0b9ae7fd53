"""Prepares corpora: read, clean, deduplicate, shuffle, train the vocabulary, tokenize.

    prepared = heedful.prepare("heedful.toml")
    heedful prepare heedful.toml [--workers N | --cluster ray://...]

If you run it again, it does nothing if all stages are finished, continues an interrupted preparation, and after a
change of settings repeats only the stages that depend on it. The result depends only on the texts and the settings.

    prepared/
      cut/ clean/      intermediate results; may be deleted afterwards
      text/00000/      clean, shuffled pairs, one directory per hash bucket
      tokens/00000/    the same pairs as ids
      vocabulary/      source.model and target.model
      rejects.jsonl    every dropped line except duplicates, with the reason
      manifest.json    the contents, with hashes
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from heedful.config import CorpusSettings, Settings, as_settings, name_corpora, to_toml
from heedful.corpus.launchers import DEFAULT_LAUNCHER, Launcher
from heedful.corpus.readers import resolve_files
from heedful.corpus.runner import run_stage
from heedful.corpus.shards import Shard, ShardRecord, StageFunction, hash_values, read_record
from heedful.corpus.stages import (
    STAGE_VERSIONS,
    choose_piece_bytes,
    clean_piece,
    collect_held_out,
    gather_bucket,
    load_piece,
    normalize_held_out_text,
    read_into_pieces,
    read_lines,
)
from heedful.corpus.text_files import strip_compression_suffix
from heedful.data.plan import BLOCK_ROWS
from heedful.data.store import ARRAYS, FORMAT_VERSION, MANIFEST, PreparedData, open_prepared
from heedful.data.tokenization import make_token_shard, tokenize_shard
from heedful.data.vocabulary import copy_vocabulary, hash_tokenizer_file, train_vocabulary
from heedful.errors import ConfigError, DataError, require, suggest_arguments
from heedful.files import file_sha256, lock_file, replace_file, update_text
from heedful.inputs.kinds import make_input

MIN_PARALLEL_BYTES = 1 << 27  # of text; below this, one process is as fast as several
COMPRESSION_RATIO = 4  # approximately, of compressed text
LOCK_WAIT_SECONDS = 30.0  # verifying a finished corpus is faster, and trainings that start together all do it
MAX_PROFILE_PAIRS = 20_000  # sampled from a corpus for its profile
MAX_PROFILE_PIECES = 64


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Progress of a stage: how many of its shards and pairs are done."""

    stage: str
    done: int
    shards: int
    pairs: int


ProgressCallback = Callable[[StageProgress], None]


@dataclass(frozen=True, slots=True)
class NamedCorpus:
    """A corpus of the settings, with the name used for its files."""

    name: str
    split: str
    corpus: CorpusSettings
    files: tuple[Path, ...]


def list_corpora(settings: Settings) -> list[NamedCorpus]:
    return [
        NamedCorpus(name, split, corpus, resolve_files(corpus.files, settings.source, settings.target))
        for name, split, corpus in name_corpora(settings)
    ]


def estimate_text_bytes(corpora: Sequence[NamedCorpus]) -> int:
    """The approximate size of the text: file sizes, times COMPRESSION_RATIO if compressed."""
    return sum(
        path.stat().st_size * (COMPRESSION_RATIO if path != strip_compression_suffix(path) else 1)
        for corpus in corpora
        for path in corpus.files
    )


def suggest_workers(settings: Settings) -> int:
    """The number of worker processes to use: one for little text, one per core for much."""
    return 1 if estimate_text_bytes(list_corpora(settings)) < MIN_PARALLEL_BYTES else os.cpu_count() or 1


@suggest_arguments
def prepare(
    settings: Settings | str | Path,
    *,
    launcher: Launcher = DEFAULT_LAUNCHER,
    progress: ProgressCallback = lambda _progress: None,
) -> PreparedData:
    """Prepare the corpora of the settings, or of a heedful.toml; finished stages are not repeated."""
    require("polars", extra="corpus", whose="heedful prepare")
    from heedful.corpus.filters import check_rule_names

    settings = as_settings(settings)
    check_rule_names(settings.clean.drop)
    folder = Path(settings.data.prepared_dir)
    corpora = list_corpora(settings)
    preparation = Preparation(settings, folder, corpora, launcher, progress)
    with lock_folder(folder), launcher.connect():
        preparation.read()
        preparation.clean()
        preparation.shuffle()
        preparation.make_vocabulary()
        preparation.tokenize()
        preparation.remove_old_shards()
        write_rejects_file(folder, corpora)
        update_text(folder / "settings.toml", to_toml(settings))
        preparation.write_manifest()
    return open_prepared(folder)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create the directory if needed and lock it for this process."""
    mark = folder / ".heedful"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"data.prepared_dir = {folder} is a file or is inside a file; choose a directory") from None
    if not mark.exists() and any(folder.iterdir()):
        raise ConfigError(f"data.prepared_dir = {folder} contains other files; choose a new or empty directory")
    with mark.open("a") as stream:
        lock_file(stream, folder, "heedful prepare", LOCK_WAIT_SECONDS)
        yield


def delete_early_stages(folder: Path) -> None:
    """Delete what only the next preparation reads; it is made again if needed, with the same content."""
    for stage in ("cut", "clean"):
        shutil.rmtree(folder / stage, ignore_errors=True)


class Preparation:
    """The stages of one preparation; call them in order."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        corpora: Sequence[NamedCorpus],
        launcher: Launcher,
        progress: ProgressCallback,
    ) -> None:
        self.settings, self.folder, self.launcher, self.progress = settings, folder, launcher, progress
        self.inputs = make_input(settings.input)
        self.corpora = corpora
        self.training = [corpus for corpus in corpora if corpus.split == "train"]
        self.held_out = [corpus for corpus in corpora if corpus.split != "train"]
        self.counts: Counter[str] = Counter()
        self.num_pieces: dict[str, int] = {}  # of each corpus
        self.clean_folders: tuple[Path, ...] = ()
        self.token_shards: dict[str, list[tuple[str, ShardRecord]]] = {}  # of each corpus: directory, record
        self.outputs: set[Path] = set()

    def _run(
        self, name: str, work: StageFunction, shards: Sequence[Shard], settings: Mapping[str, Any]
    ) -> list[ShardRecord]:
        done, pairs = 0, 0

        def report(record: ShardRecord) -> None:
            nonlocal done, pairs
            done, pairs = done + 1, pairs + sum(record.counts.get(key, 0) for key in ("pairs", "read"))
            self.progress(StageProgress(name, done, len(shards), pairs))

        def remove_manifest() -> None:  # it no longer matches the shards
            (self.folder / MANIFEST).unlink(missing_ok=True)

        self.progress(StageProgress(name, 0, len(shards), 0))
        for shard in shards:
            shard.output.parent.mkdir(parents=True, exist_ok=True)
        self.outputs.update(shard.output for shard in shards)
        return run_stage(
            work,
            shards,
            settings,
            STAGE_VERSIONS,
            launcher=self.launcher,
            on_done=report,
            before_changes=remove_manifest,
        )

    def remove_old_shards(self) -> None:
        """Remove shards left over from earlier settings."""
        for path in chain.from_iterable(
            (self.folder / stage).iterdir() for stage in ("cut", "clean", "text", "tokens")
        ):
            if path not in self.outputs and read_record(path):
                shutil.rmtree(path)

    def read(self) -> None:
        data = self.settings.data
        shards = [Shard(corpus.name, corpus.files, self.folder / "cut" / corpus.name) for corpus in self.corpora]
        selections = {
            named.name: {"columns": list(named.corpus.columns), "sheet": named.corpus.sheet}
            for named in self.corpora
            if named.corpus.columns or named.corpus.sheet
        }
        settings = {
            **({"selections": selections} if selections else {}),
            "source": self.settings.source,
            "target": self.settings.target,
            "max_line_bytes": data.max_line_bytes,
            "max_reject_share": data.max_reject_share,
            "piece_bytes": choose_piece_bytes(estimate_text_bytes(self.corpora)),
        }
        records = self._run("read", read_into_pieces, shards, settings)
        for corpus, record in zip(self.corpora, records, strict=True):
            self.counts["rejected"] += record.counts["rejected"]
            self.counts[f"{corpus.split}.read"] += record.counts.get("pairs", 0)
            self.counts["bytes"] += record.counts.get("bytes", 0) if corpus.split == "train" else 0
            if not record.counts.get("pairs"):
                raise DataError(f"{' and '.join(map(str, corpus.files))}: no pairs were found; check the files")
            self.num_pieces[corpus.name] = record.counts["pieces"]

    def clean(self) -> None:
        """Clean the pieces of the training corpora and distribute their pairs over hash buckets."""
        from heedful.corpus.filters import profile_pairs
        from heedful.corpus.rules import RULES

        clean_settings = self.settings.clean
        held_out = [self.folder / "cut" / corpus.name for corpus in self.held_out]
        held_out_inputs: tuple[Path, ...] = ()
        # Files are compared by heedful check: equal names of files mean nothing, and one picture may have two names.
        if held_out and clean_settings.overlap != "keep" and self.inputs.nouns is None:
            held_out_inputs = (self.folder / "held" / "all",)
            shard = Shard("all", tuple(held_out), held_out_inputs[0])
            self._run("collect held-out", collect_held_out, [shard], self.source_settings)
        limits = (clean_settings.max_words, clean_settings.max_length_ratio)
        profiles = {corpus.name: profile_pairs(*self._sample_pairs(corpus.name), *limits) for corpus in self.training}
        shards = [
            Shard(
                f"{corpus.name}-{piece:05}",
                (self.folder / "cut" / corpus.name, *held_out_inputs),
                self.folder / "clean" / f"{corpus.name}-{piece:05}",
            )
            for corpus in self.training
            for piece in range(self.num_pieces[corpus.name])
        ]
        both_are_text = self.has_text_source and not self.has_labels
        drop = [name for name in clean_settings.drop if both_are_text or RULES[name].pair is None]
        if self.has_labels and not self.has_text_source:
            drop = []
        settings = {
            "drop": drop,
            "overlap": clean_settings.overlap,
            "profiles": profiles,
            "num_buckets": self.num_buckets,
            **self.source_settings,
            **({"has_labels": True} if self.has_labels else {}),
            **({"roots": self._number_roots()} if self.inputs.nouns else {}),
        }
        for record in self._run("clean", clean_piece, shards, settings):
            self.counts.update({name: number for name, number in record.counts.items() if name != "read"})
        self.clean_folders = tuple(shard.output for shard in shards)

    def _number_roots(self) -> dict[str, int]:
        """Of each training corpus, a number for the directory that its paths are relative to."""
        roots = {corpus.name: corpus.files[0].parent.absolute() for corpus in self.training}
        distinct = list(dict.fromkeys(roots.values()))
        return {name: distinct.index(root) for name, root in roots.items()}

    def _sample_pairs(self, name: str) -> tuple[list[str], list[str]]:
        """Pairs from every part of a corpus, because its parts may differ."""
        source: list[str] = []
        target: list[str] = []
        num_pieces = self.num_pieces[name]
        for piece in range(0, num_pieces, max(1, num_pieces // MAX_PROFILE_PIECES)):
            left, right, _ = load_piece(self.folder / "cut" / name, piece)
            step = max(1, len(left) * min(num_pieces, MAX_PROFILE_PIECES) // MAX_PROFILE_PAIRS)
            source += (left if self.has_text_source else right)[::step]
            target += (left if self.has_text_source and self.has_labels else right)[::step]
        return source, target

    @property
    def has_text_source(self) -> bool:
        return "source" in self.inputs.text_sides

    @property
    def has_labels(self) -> bool:
        return self.settings.output.kind == "labels"

    @property
    def source_settings(self) -> dict[str, Any]:
        """A setting of the stages if the sources are not text; the shards of text do not depend on it."""
        return {} if self.has_text_source else {"has_text_source": False}

    @property
    def num_buckets(self) -> int:
        return max(1, -(-self.counts["bytes"] // choose_piece_bytes(self.counts["bytes"])))

    @property
    def bucket_names(self) -> list[str]:
        return [f"{bucket:05}" for bucket in range(self.num_buckets)]

    def shuffle(self) -> None:
        """Gather the buckets of the training corpora; validation and test keep all lines in order."""
        shards = [Shard(bucket, self.clean_folders, self.folder / "text" / bucket) for bucket in self.bucket_names]
        settings = {"corpora": [corpus.name for corpus in self.training], "duplicates": self.settings.clean.duplicates}
        for record in self._run("deduplicate and shuffle", gather_bucket, shards, settings):
            self.counts.update(record.counts)
        if self.held_out:
            shards = [
                Shard(corpus.name, (self.folder / "cut" / corpus.name,), self.folder / "text" / corpus.name)
                for corpus in self.held_out
            ]
            self._run("normalize held-out", normalize_held_out_text, shards, self.source_settings)

    def make_vocabulary(self) -> None:
        """Train the tokenizers on the beginning of the shuffled text, or copy `tokenizer.files`."""
        text = tuple(self.folder / "text" / bucket for bucket in self.bucket_names)
        shard = Shard("vocabulary", text, self.folder / "vocabulary")
        chosen = self.settings.tokenizer
        if chosen.files:
            hashes = [hash_tokenizer_file(file) for file in chosen.files]
            settings = {"files": chosen.files, "hashes": hashes, **self.side_settings}
            self._run("vocabulary", copy_vocabulary, [shard], settings)
            return
        settings = {
            "kind": chosen.kind,
            "vocab_size": chosen.vocab_size,
            "shared": chosen.shared,
            "byte_fallback": chosen.byte_fallback,
            "character_coverage": chosen.character_coverage,
            "training_pairs": chosen.training_pairs,
            "tags": [
                *sorted({corpus.corpus.tag for corpus in self.corpora if corpus.corpus.tag}),
                *(f"<reserved_{number}>" for number in range(chosen.reserved_pieces)),
            ],
            "corpora": [corpus.name for corpus in self.training],
            **self.side_settings,
            **({"labels": "fields" if self.settings.output.per_slot else "label"} if self.has_labels else {}),
        }
        self._run("vocabulary", train_vocabulary, [shard], settings)

    @property
    def side_settings(self) -> dict[str, Any]:
        return {} if self.has_text_source else {"sides": list(self.inputs.text_sides)}

    def row_settings(self, folders: Sequence[str], corpora: Sequence[NamedCorpus]) -> dict[str, Any]:
        """Settings of the stage that makes rows, if the sources are not text; they change if a file changes."""
        if self.has_text_source:
            return {}
        roots = {corpus.name: corpus.files[0].parent.absolute().as_posix() for corpus in corpora}
        digests = [
            self.inputs.files_digest(read_lines(self.folder / "text" / folder / f"{name}.source"), Path(root))
            for folder in folders
            for name, root in roots.items()
        ]
        return {"input": self.settings.input.model_dump(mode="json"), "roots": roots, "files": digests}

    def tokenize(self) -> None:
        common: dict[str, Any] = {"subword_regularization": 0.0, "seed": self.settings.seed, "epoch": 0}
        tags = {corpus.name: corpus.corpus.tag for corpus in self.training}
        max_tokens = self.settings.clean.max_tokens
        shards = [make_token_shard(self.folder, bucket) for bucket in self.bucket_names]
        if self.settings.output.per_slot:
            common |= {"per_slot": True}
        settings = common | {
            "tags": tags,
            "max_tokens": max_tokens,
            **self.row_settings(self.bucket_names, self.training),
        }
        records = self._run("tokenize", tokenize_shard, shards, settings)
        buckets = list(zip(self.bucket_names, records, strict=True))
        self.token_shards = {corpus.name: buckets for corpus in self.training}
        for record in records:
            self.counts.update(record.counts)
        for corpus in self.held_out:
            shard = make_token_shard(self.folder, corpus.name)
            settings = common | {"tags": {corpus.name: corpus.corpus.tag}, "max_tokens": None}
            settings |= self.row_settings([corpus.name], [corpus])
            (record,) = self._run("tokenize", tokenize_shard, [shard], settings)
            self.token_shards[corpus.name] = [(corpus.name, record)]

    def write_manifest(self) -> None:
        """Write manifest.json: corpora with directories and hashes, vocabularies, counts, and a fingerprint."""
        vocabularies = self._list_vocabularies()
        corpora = [self._list_corpus(corpus) for corpus in self.corpora]
        manifest = {
            "format": FORMAT_VERSION,
            "source": self.settings.source,
            "target": self.settings.target,
            "block": BLOCK_ROWS,
            "temperature": self.settings.data.temperature,
            "longest_tokens": self.settings.clean.max_tokens,
            "tokenizers": vocabularies,
            **({} if self.has_text_source else {"input": self.settings.input.model_dump(mode="json")}),
            "counts": dict(sorted(self.counts.items())),
            "corpora": corpora,
            "fingerprint": hash_values([vocabularies, *(corpus["fingerprint"] for corpus in corpora)]),
        }
        update_text(self.folder / MANIFEST, json.dumps(manifest, indent=1))

    def _list_vocabularies(self) -> dict[str, dict[str, Any]]:
        vocabulary = self.folder / "vocabulary"
        record = read_record(vocabulary)
        assert record is not None
        return {
            side: {
                "file": f"{vocabulary.name}/{side}.model",
                "sha256": file_sha256(vocabulary / f"{side}.model"),
                "size": record.counts[side],
            }
            for side in self.inputs.text_sides
        }

    def _list_corpus(self, corpus: NamedCorpus) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [
            {
                "folder": f"tokens/{folder}",
                "rows": record.counts.get(f"rows.{corpus.name}", 0),
                "sha256": record.output,
                "files": {name: record.files[name] for name in (f"{corpus.name}.{array}.npy" for array in ARRAYS)},
            }
            for folder, record in self.token_shards[corpus.name]
        ]
        if corpus.split == "train" and not any(part["rows"] for part in parts):
            raise DataError(
                f"all pairs of the corpus `{corpus.name}` were dropped; rejects.jsonl lists the reasons, "
                "except for duplicates"
            )
        return {
            "name": corpus.name,
            "split": corpus.split,
            "tag": corpus.corpus.tag,
            "weight": corpus.corpus.weight,
            "rows": sum(part["rows"] for part in parts),
            "fingerprint": hash_values([corpus.name, *(part["sha256"] for part in parts)]),
            "parts": parts,
        }


def write_rejects_file(folder: Path, corpora: Sequence[NamedCorpus]) -> None:
    """Write rejects.jsonl: one object with file, line and reason per dropped pair."""
    files = {corpus.name: str(corpus.files[0]) for corpus in corpora}

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for corpus in corpora:
                stream.write((folder / "cut" / corpus.name / "rejects.jsonl").read_text("utf-8"))
            for dropped in sorted(
                chain((folder / "clean").glob("*/dropped.jsonl"), (folder / "tokens").glob("*/dropped.jsonl"))
            ):
                for line in dropped.read_text("utf-8").splitlines():
                    entry = json.loads(line)
                    stream.write(json.dumps({"file": files[entry.pop("corpus")]} | entry, ensure_ascii=False) + "\n")

    replace_file(folder / "rejects.jsonl", write)
