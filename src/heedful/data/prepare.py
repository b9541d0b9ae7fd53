"""From corpora to tokens: cut, clean, gather, learn the vocabulary, tokenize; all through the shard runner.

    prepared = heedful.prepare("heedful.toml")
    heedful prepare heedful.toml [--workers N | --cluster ray://...]

The same call on a finished folder does nothing, on an unfinished one it goes on where it stopped, and after a change of
settings it redoes what depends on it. Its result depends on the texts and the settings alone.

    prepared/
      cut/ clean/      between stages; may be deleted when all is done
      text/00000/      clean, shuffled pairs, one folder per hash bucket
      tokens/00000/    the same as ids
      vocabulary/      source.model and target.model
      rejects.jsonl    every line that was left out but for duplicates, and why
      manifest.json    what there is, with hashes
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from heedful.config import Corpus, Settings, corpora_of, settled, to_toml
from heedful.corpus.readers import bare, paired
from heedful.corpus.shards import HERE, Launcher, Row, Shard, hash_of, read_row, run
from heedful.corpus.stages import clean, cut, gather, hold, load_piece, piece_bytes, read_lines, write_lines
from heedful.data.plan import BLOCK
from heedful.data.store import (
    ARRAYS,
    FORMAT,
    MANIFEST,
    SIDES,
    Prepared,
    Stored,
    counted,
    kept,
    lengths_of,
    open_prepared,
    write_tokens,
)
from heedful.errors import ConfigError, DataError, HeedfulError, require
from heedful.text.normalize import normalize_all
from heedful.text.tokenizer import Tokenizer, load, train


@dataclass(frozen=True, slots=True)
class Step:
    """What is going on, for a progress display: so many shards of a stage are done, and of its pairs."""

    stage: str
    done: int
    shards: int
    pairs: int


Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Named:
    """A corpus of the configuration with the name that its files get."""

    name: str
    split: str
    corpus: Corpus
    files: tuple[Path, ...]


def name_all(settings: Settings) -> list[Named]:
    """Every corpus, with its files."""
    languages = (settings.source, settings.target)
    return [
        Named(name, split, corpus, paired(corpus.files, *languages)) for name, split, corpus in corpora_of(settings)
    ]


def raw_bytes(corpora: Sequence[Named]) -> int:
    """About how much text there is: the size of the files, packed ones four times."""
    return sum(path.stat().st_size * (4 if path != bare(path) else 1) for one in corpora for path in one.files)


def workers_for(settings: Settings) -> int:
    """Processes worth starting: one for a little text, one per core for much."""
    return 1 if raw_bytes(name_all(settings)) < 1 << 27 else os.cpu_count() or 1


def prepare(
    settings: Settings | str | Path, *, launcher: Launcher = HERE, progress: Progress = lambda _step: None
) -> Prepared:
    """Make (or finish, or just open) the prepared folder of these settings, or of a heedful.toml."""
    require("polars", extra="corpus", whose="heedful prepare")
    from heedful.corpus.filters import known

    settings = settled(settings)
    known(settings.clean.drop)
    folder = Path(settings.data.folder)
    corpora = name_all(settings)
    stage = Stages(settings, folder, launcher, progress)
    with owned(folder), launcher.ready():
        pieces = stage.cut(corpora)
        cleaned = stage.clean(corpora, pieces)
        stage.text(corpora, cleaned)
        vocabulary = stage.vocabulary(corpora)
        parts = stage.tokens(corpora)
        stage.forget()
        list_rejects(folder, corpora)
        write_text(folder / "settings.toml", to_toml(settings))
        write_manifest(folder, settings, corpora, parts, vocabulary, stage.counts)
    return open_prepared(folder)


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Nobody else's folder, and nobody else's at this time."""
    mark = folder / ".heedful"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"data.folder = {folder} is or goes through a file; name a folder") from None
    if not mark.exists() and any(folder.iterdir()):
        raise ConfigError(f"data.folder = {folder} holds other things; name a new or an empty folder")
    with mark.open("a") as stream:
        lock(stream, folder)
        yield


def lock(stream: TextIO, folder: Path, whose: str = "heedful prepare") -> None:
    """The file is ours until it is closed; other machines know of it only where the disk tells them."""
    try:
        if os.name == "nt":  # pragma: no cover  # Windows
            msvcrt = import_module("msvcrt")
            stream.seek(0)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl = import_module("fcntl")
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise HeedfulError(f"another {whose} is at work in {folder}; wait for it, or stop it") from None
    except OSError:  # pragma: no cover  # a file system without locks
        return


class Stages:
    """The stages of one preparation, in order, and what they counted."""

    def __init__(self, settings: Settings, folder: Path, launcher: Launcher, progress: Progress) -> None:
        self.settings, self.folder, self.launcher, self.progress = settings, folder, launcher, progress
        self.counts: Counter[str] = Counter()
        self.outputs: set[Path] = set()

    def run(
        self, name: str, work: Callable[..., Mapping[str, int]], shards: Sequence[Shard], settings: Any
    ) -> list[Row]:
        """Run one stage, with progress."""
        done, pairs = 0, 0

        def tell(row: Row) -> None:
            nonlocal done, pairs
            done, pairs = done + 1, pairs + sum(row.counts.get(key, 0) for key in ("pairs", "read"))
            self.progress(Step(name, done, len(shards), pairs))

        self.progress(Step(name, 0, len(shards), 0))
        for shard in shards:
            shard.output.parent.mkdir(parents=True, exist_ok=True)
        self.outputs.update(shard.output for shard in shards)
        return run(work, shards, settings, launcher=self.launcher, done=tell, begin=self.reopen)

    def reopen(self) -> None:
        """Something will change: what the manifest says no longer holds."""
        (self.folder / MANIFEST).unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove shards that an earlier configuration left behind."""
        for old in chain.from_iterable((self.folder / stage).iterdir() for stage in ("cut", "clean", "text", "tokens")):
            if old not in self.outputs and read_row(old):
                shutil.rmtree(old)

    def cut(self, corpora: Sequence[Named]) -> dict[str, int]:
        """Read every corpus; gives the number of pieces of each."""
        data = self.settings.data
        shards = [Shard(one.name, one.files, self.folder / "cut" / one.name) for one in corpora]
        languages = {"source": self.settings.source, "target": self.settings.target}
        limits = {
            "longest": data.longest_bytes,
            "reject_limit": data.reject_limit,
            "bytes_each": piece_bytes(raw_bytes(corpora)),
        }
        rows = self.run("read", cut, shards, languages | limits)
        for one, row in zip(corpora, rows, strict=True):
            self.counts["rejected"] += row.counts["rejected"]
            self.counts[f"{one.split}.read"] += row.counts.get("pairs", 0)
            self.counts["bytes"] += row.counts.get("bytes", 0) if one.split == "train" else 0
            if not row.counts.get("pairs"):
                raise DataError(f"{' and '.join(map(str, one.files))}: no pairs in it")
        return {one.name: row.counts["pieces"] for one, row in zip(corpora, rows, strict=True)}

    def clean(self, corpora: Sequence[Named], pieces: Mapping[str, int]) -> list[Path]:
        """Clean the pieces of the training corpora, scattered over hash buckets; gives their folders."""
        from heedful.corpus.filters import profile_of

        clean_settings, training = self.settings.clean, [one for one in corpora if one.split == "train"]
        held = [self.folder / "cut" / one.name for one in corpora if one.split != "train"]
        inputs: tuple[Path, ...] = ()
        if held and clean_settings.overlap != "keep":
            inputs = (self.folder / "held" / "all",)
            self.run("hold out", hold, [Shard("all", tuple(held), inputs[0])], {})
        limits = (clean_settings.longest_words, clean_settings.largest_ratio)
        profiles = {one.name: profile_of(*self.sample(one.name, pieces[one.name]), *limits) for one in training}
        shards = [
            Shard(
                f"{one.name}-{piece:05}",
                (self.folder / "cut" / one.name, *inputs),
                self.folder / "clean" / f"{one.name}-{piece:05}",
            )
            for one in training
            for piece in range(pieces[one.name])
        ]
        chosen = {
            "drop": list(clean_settings.drop),
            "overlap": clean_settings.overlap,
            "profiles": profiles,
            "buckets": self.buckets,
        }
        for row in self.run("clean", clean, shards, chosen):
            self.counts.update({name: number for name, number in row.counts.items() if name != "read"})
        return [shard.output for shard in shards]

    def sample(self, name: str, pieces: int, most: int = 20_000) -> tuple[list[str], list[str]]:
        """Some pairs of every part of a corpus, of which no part needs to be like another."""
        source: list[str] = []
        target: list[str] = []
        for piece in range(0, pieces, max(1, pieces // 64)):
            left, right, _ = load_piece(self.folder / "cut" / name, piece)
            step = max(1, len(left) * min(pieces, 64) // most)
            source += left[::step]
            target += right[::step]
        return source, target

    @property
    def buckets(self) -> int:
        """How many hash buckets the training text is scattered over."""
        return max(1, -(-self.counts["bytes"] // piece_bytes(self.counts["bytes"])))

    def text(self, corpora: Sequence[Named], cleaned: Sequence[Path]) -> None:
        """Gather the buckets of the training corpora; the others stay in their order, every line of them."""
        names = [one.name for one in corpora if one.split == "train"]
        shards = [
            Shard(f"{bucket:05}", tuple(cleaned), self.folder / "text" / f"{bucket:05}")
            for bucket in range(self.buckets)
        ]
        for row in self.run(
            "deduplicate and shuffle", gather, shards, {"corpora": names, "duplicates": self.settings.clean.duplicates}
        ):
            self.counts.update(row.counts)
        held = [one for one in corpora if one.split != "train"]
        if held:
            shards = [
                Shard(one.name, (self.folder / "cut" / one.name,), self.folder / "text" / one.name) for one in held
            ]
            self.run("keep", keep, shards, {})

    def vocabulary(self, corpora: Sequence[Named]) -> Path:
        """Learn the tokenizers from the head of the shuffled text."""
        text = tuple(self.folder / "text" / f"{bucket:05}" for bucket in range(self.buckets))
        tags = sorted({one.corpus.tag for one in corpora if one.corpus.tag})
        names = [one.name for one in corpora if one.split == "train"]
        chosen = self.settings.tokenizer.model_dump(exclude={"regularization"})
        shard = Shard("vocabulary", text, self.folder / "vocabulary")
        if files := chosen.pop("files"):
            self.run("vocabulary", take, [shard], {"files": files, "hashes": [digest_of(file) for file in files]})
        else:
            self.run("vocabulary", learn, [shard], chosen | {"tags": tags, "corpora": names})
        return shard.output

    def tokens(self, corpora: Sequence[Named]) -> dict[str, list[tuple[str, Row]]]:
        """Text to ids; gives the folders of each corpus with their rows."""
        training = [one for one in corpora if one.split == "train"]
        shared = {"amount": 0.0, "seed": self.settings.seed, "epoch": 0}
        shards = [token_shard(self.folder, f"{bucket:05}") for bucket in range(self.buckets)]
        tags = {one.name: one.corpus.tag for one in corpora}
        rows = self.run(
            "tokenize",
            tokenize,
            shards,
            shared
            | {"tags": {one.name: tags[one.name] for one in training}, "longest": self.settings.clean.longest_tokens},
        )
        parts = {
            one.name: [(shard.output.name, row) for shard, row in zip(shards, rows, strict=True)] for one in training
        }
        for row in rows:
            self.counts.update(row.counts)
        for one in corpora:
            if one.split != "train":
                shards = [token_shard(self.folder, one.name)]
                rows = self.run(
                    "tokenize", tokenize, shards, shared | {"tags": {one.name: one.corpus.tag}, "longest": None}
                )
                parts[one.name] = [(one.name, rows[0])]
        return parts


def learn(
    shard: Shard,
    folder: Path,
    *,
    corpora: Sequence[str],
    tags: Sequence[str],
    kind: str,
    vocabulary: int,
    shared: bool,
    byte_fallback: bool,
    coverage: float,
    sample: int,
) -> Mapping[str, int]:
    """Train one tokenizer for both sides or one for each, on the first pairs in the order of their hash."""
    counts = {}
    for sides in (SIDES,) if shared else tuple((side,) for side in SIDES):
        texts = chain.from_iterable(head(shard.inputs, corpora, side, sample) for side in sides)
        tokenizer = train(kind, texts, vocabulary, tags=tags, byte_fallback=byte_fallback, coverage=coverage)
        for side in sides:
            tokenizer.save(folder / f"{side}.model")
            counts[side] = tokenizer.size
    return counts


def take(
    shard: Shard,  # noqa: ARG001  # the same face as the others
    folder: Path,
    *,
    files: Sequence[str],
    hashes: Sequence[str],  # noqa: ARG001  # other files are other work
) -> Mapping[str, int]:
    """Tokenizers that are there already, one for each side."""
    tokenizers = {side: load(Path(file)) for side, file in zip(SIDES, files, strict=True)}
    for side, tokenizer in tokenizers.items():
        tokenizer.save(folder / f"{side}.model")
    return {side: tokenizer.size for side, tokenizer in tokenizers.items()}


def digest_of(file: str) -> str:
    """The sha256 of a tokenizer that is there already."""
    try:
        return sha256(Path(file).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"tokenizer.files: {file} cannot be read: {error.strerror}") from None


def head(folders: Sequence[Path], corpora: Sequence[str], side: str, most: int) -> Iterator[str]:
    """About `most` lines of one side: as the text is shuffled, its beginning is a sample of all.

    Of the first folders that hold enough, every corpus gives the same share, as each has an order of its own.
    """
    rows = [[len(np.load(folder / f"{name}.line.npy", mmap_mode="r")) for name in corpora] for folder in folders]
    first = int(np.searchsorted(np.cumsum([sum(row) for row in rows]), most)) + 1
    share = min(1.0, most / max(1, sum(sum(row) for row in rows[:first])))
    for folder, counts in zip(folders[:first], rows, strict=False):
        for name, count in zip(corpora, counts, strict=True):
            yield from islice(read_lines(folder / f"{name}.{side}"), ceil(share * count))


def keep(shard: Shard, folder: Path) -> Mapping[str, int]:
    """Validation and test: every line, in order, normalized and nothing else."""
    source: list[str] = []
    target: list[str] = []
    lines = []
    for number in range(len(list(shard.inputs[0].glob("*.line.npy")))):
        left, right, some = load_piece(shard.inputs[0], number)
        source += normalize_all(left)[0]
        target += normalize_all(right)[0]
        lines.append(some)
    write_lines(folder / f"{shard.name}.source", source)
    write_lines(folder / f"{shard.name}.target", target)
    np.save(folder / f"{shard.name}.line.npy", np.concatenate(lines))
    return {"pairs": len(source)}


def token_shard(folder: Path, name: str, into: str = "tokens") -> Shard:
    """The shard that turns one folder of text into tokens; it depends on the vocabularies too."""
    return Shard(name, (folder / "text" / name, folder / "vocabulary"), folder / into / name)


def tokenize(
    shard: Shard,
    folder: Path,
    *,
    tags: Mapping[str, str | None],
    longest: int | None,
    amount: float,
    seed: int,
    epoch: int,
) -> Mapping[str, int]:
    """Text to ids, the tag in front of the source; regularized, a pure function of seed, epoch and shard.

    Pairs longer than `longest` are left out. Which, does not depend on the draw: a segmentation that is too long gives
    way to the plain one, so that every epoch has the same pairs.
    """
    counts: Counter[str] = Counter()
    tokenizers = {side: load(shard.inputs[1] / f"{side}.model") for side in SIDES}
    threads = 1 if os.environ.get("OMP_NUM_THREADS") == "1" else os.cpu_count() or 1  # a worker among others has one
    with (folder / "dropped.jsonl").open("w", encoding="utf-8", newline="\n") as stream:
        for name, tag in tags.items():
            lines = np.load(shard.inputs[0] / f"{name}.line.npy")
            ids: dict[str, list[list[int]]] = {}
            for side, tokenizer in tokenizers.items():
                data = (shard.inputs[0] / f"{name}.{side}").read_bytes()
                texts = data.decode().split("\n")[:-1]
                counts[f"words.{side}"] += int((np.frombuffer(data, np.uint8) == ord(" ")).sum()) + len(texts)
                if amount:
                    ids[side] = drawn(tokenizer, texts, amount, draw(seed, epoch, shard.name, name, side), longest)
                else:
                    ids[side] = tokenizer.encode(texts, threads)
            longer = np.maximum(*map(lengths_of, ids.values()))
            gone = np.flatnonzero(longer > longest) if longest else np.empty(0, np.int64)
            if len(gone):
                for row in gone.tolist():
                    stream.write(json.dumps({"corpus": name, "line": int(lines[row]), "reason": "long_tokens"}) + "\n")
                left_out = set(gone.tolist())
                ids = {side: [row for at, row in enumerate(rows) if at not in left_out] for side, rows in ids.items()}
                counts["dropped.long_tokens"] += len(gone)
            if tag:
                first = tokenizers["source"].tag(tag)
                ids["source"] = [[first, *row] for row in ids["source"]]
            for side in SIDES:
                counts[f"tokens.{side}"] += write_tokens(folder, f"{name}.{side}", ids[side], tokenizers[side].size)
            np.save(folder / f"{name}.line.npy", np.delete(lines, gone))
            counts[f"rows.{name}"] += len(lines) - len(gone)
    return counts


def drawn(tokenizer: Tokenizer, texts: list[str], amount: float, seed: int, longest: int | None) -> list[list[int]]:
    """A draw for every text, but the plain tokens where either has more than `longest`."""
    rows = tokenizer.sample(texts, amount, seed)
    # No text has more tokens than bytes and spaces.
    for at in [at for at, text in enumerate(texts) if longest and len(text.encode()) + text.count(" ") >= longest]:
        (plain,) = tokenizer.encode([texts[at]])
        if longest and max(len(plain), len(rows[at])) > longest:
            rows[at] = plain
    return rows


def draw(*name: object) -> int:
    """A seed out of names and numbers."""
    return int(hash_of(name)[:15], 16)


def write_text(path: Path, text: str) -> None:
    """Replace a file, unless it says this already."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        replace_file(path, lambda part: part.write_text(text, encoding="utf-8", newline="\n"))


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write beside, sync, rename: the file is there whole or as it was."""
    part = path.with_name(f".tmp-{path.name}")
    write(part)
    with part.open("rb+") as stream:
        os.fsync(stream.fileno())
    part.replace(path)


def list_rejects(folder: Path, corpora: Sequence[Named]) -> None:
    """Put together what the stages left out: one object a line, with file, line and reason."""
    files = {one.name: str(one.files[0]) for one in corpora}

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for one in corpora:
                stream.write((folder / "cut" / one.name / "rejects.jsonl").read_text("utf-8"))
            for dropped in sorted(
                chain((folder / "clean").glob("*/dropped.jsonl"), (folder / "tokens").glob("*/dropped.jsonl"))
            ):
                for line in dropped.read_text("utf-8").splitlines():
                    entry = json.loads(line)
                    stream.write(json.dumps({"file": files[entry.pop("corpus")]} | entry, ensure_ascii=False) + "\n")

    replace_file(folder / "rejects.jsonl", write)


def write_manifest(
    folder: Path,
    settings: Settings,
    corpora: Sequence[Named],
    parts: Mapping[str, Sequence[tuple[str, Row]]],
    vocabulary: Path,
    counts: Mapping[str, int],
) -> None:
    """manifest.json: format, corpora with folders and hashes, vocabularies, counts, and one fingerprint of all."""
    sizes = read_row(vocabulary)
    assert sizes is not None
    vocabularies = {
        side: {
            "file": f"{vocabulary.name}/{side}.model",
            "sha256": sha256((vocabulary / f"{side}.model").read_bytes()).hexdigest(),
            "size": sizes.counts[side],
        }
        for side in SIDES
    }
    listed: list[dict[str, Any]] = []
    for one in corpora:
        rows: list[dict[str, Any]] = [
            {
                "folder": f"tokens/{place}",
                "rows": row.counts.get(f"rows.{one.name}", 0),
                "sha256": row.output,
                "files": {name: row.files[name] for name in (f"{one.name}.{what}.npy" for what in ARRAYS)},
            }
            for place, row in parts[one.name]
        ]
        if one.split == "train" and not any(part["rows"] for part in rows):
            raise DataError(f"nothing is left of the corpus `{one.name}`; rejects.jsonl says why, but for duplicates")
        fingerprint = hash_of([one.name, *(part["sha256"] for part in rows)])
        listed.append(
            {
                "name": one.name, "split": one.split, "tag": one.corpus.tag, "weight": one.corpus.weight,
                "rows": sum(part["rows"] for part in rows), "fingerprint": fingerprint, "parts": rows,
            }
        )  # fmt: skip
    manifest = {
        "format": FORMAT,
        "source": settings.source,
        "target": settings.target,
        "block": BLOCK,
        "temperature": settings.data.temperature,
        "longest_tokens": settings.clean.longest_tokens,
        "tokenizers": vocabularies,
        "counts": dict(sorted(counts.items())),
        "corpora": listed,
        "fingerprint": hash_of([vocabularies, *(one["fingerprint"] for one in listed)]),
    }
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1))


# ------------------------------------------------------------------------------------------ subword regularization


@dataclass(frozen=True)
class Resampled:
    """A corpus whose texts are cut into tokens anew for every epoch; `plan.Plan` makes batches of it.

    An epoch's tokens are made when first asked for (through the shard runner, so only once) and may be deleted after.
    """

    prepared: Prepared
    name: str
    amount: float
    seed: int
    launcher: Launcher = HERE
    held: int = 0  # rows at the end that are not learned from
    fixed = False
    _made: dict[int, Stored] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def plain(self) -> Stored:
        """The same corpus without regularization."""
        return next(stored for stored in self.prepared.train if stored.name == self.name)

    @property
    def fingerprint(self) -> str:
        """Of the plain tokens, the amount and the seed."""
        return hash_of([self.plain.fingerprint, self.amount, self.seed, *([self.held] if self.held else [])])

    @property
    def rows(self) -> int:
        """How many pairs; the same in every epoch."""
        return self.plain.rows - self.held

    def epoch(self, number: int) -> Stored:
        """The tokens of one epoch."""
        if number not in self._made:
            self._made.clear()  # who asks for another epoch is done with the last
            self._made[number] = self._make(number)
        return self._made[number]

    def _make(self, number: int) -> Stored:
        folder = self.prepared.folder
        corpus = next(one for one in self.prepared.manifest["corpora"] if one["name"] == self.name)
        into = f"epochs/{self.name}-{number:05}"
        shards = [token_shard(folder, Path(part["folder"]).name, into) for part in corpus["parts"]]
        for shard in shards:
            shard.output.parent.mkdir(parents=True, exist_ok=True)
        chosen = {
            "tags": {self.name: corpus["tag"]},
            "longest": self.prepared.manifest["longest_tokens"],
            "amount": self.amount,
            "seed": self.seed,
            "epoch": number,
        }
        rows = run(tokenize, shards, chosen, launcher=self.launcher)
        sizes = tuple(row.counts[f"rows.{self.name}"] for row in rows)
        if sum(sizes) != self.plain.rows:
            raise HeedfulError(f"{folder}: its text changed after it was tokenized. Type: heedful prepare")
        fingerprint = hash_of([row.output for row in rows])
        made = Stored(self.name, tuple(shard.output for shard in shards), sizes, fingerprint, folder / "plan")
        return made.without_last(self.held) if self.held else made

    def lengths(self, epoch: int, block: int) -> tuple[Any, Any]:
        """Source and target lengths of a block in one epoch."""
        return self.epoch(epoch).lengths(epoch, block)

    def units(self, epoch: int, micro_tokens: int) -> Any:
        """How many micro-batches each block makes in one epoch; kept, so that old epochs are not made again for it."""
        path = self.prepared.folder / "plan" / f"{self.fingerprint[:16]}-{epoch}-{micro_tokens}.npy"
        return kept(path, lambda: counted(self, epoch, micro_tokens))

    def pairs(self, epoch: int, rows: Sequence[int]) -> list[tuple[Any, Any]]:
        """The ids of some rows in one epoch."""
        return self.epoch(epoch).pairs(rows)
