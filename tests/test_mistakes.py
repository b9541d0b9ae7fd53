"""What newcomers get wrong, and what heedful says: each mistake is made on the real command line.

python tests/test_mistakes.py        writes the messages into docs/mistakes.md again
"""

import errno
import gzip
import io
import json
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import wrap
from unittest.mock import patch

import pytest

import heedful
from heedful import errors
from heedful.cli import app
from heedful.errors import HeedfulError
from support.training_runs import settings_of, write_corpus, write_settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mistakes.md"
BEGIN, END = "<!-- mistakes -->\n", "<!-- the end of the mistakes -->\n"
WIDTH = 110
LECTURE = '[[slide]]\npanel = "stage"\n\n[[slide]]\npanel = "map"\nstate = "step=1"\n'
TOML = 'source = "en"\ntarget = "de"\n\n[data]\ntrain = [{ files = "train" }]\n'


# ------------------------------------------------------------------------------------------------ the place


@cache
def place() -> Path:
    """A folder with a corpus and a run that was trained, if not well; made once."""
    folder = Path(tempfile.mkdtemp(prefix="heedful-mistakes-")).resolve()
    write_corpus(folder, pairs=60)
    settings = settings_of(folder, folder / "my-model", steps=2, validate_every=2, save_every=2, validate_pairs=2)
    write_settings(settings).rename(folder / "old.toml")
    heedful.train(settings)
    (folder / "heedful.toml").write_text(TOML)
    return folder


@pytest.fixture(scope="module", autouse=True)
def gone_at_the_end():
    yield
    shutil.rmtree(place())


def write(name: str, data: str | bytes) -> None:
    Path(name).write_bytes(data.encode() if isinstance(data, str) else data)


def lines(name: str) -> list[str]:
    return Path(name).read_text(encoding="utf-8").splitlines(keepends=True)


# ------------------------------------------------------------------------------------------------ ways to be wrong


Setup = Callable[[], object]
Patch = Callable[[], object]  # a context manager, entered while the command runs


def without(*packages: str) -> Patch:
    """As if these were not installed."""
    real = errors.find_spec
    return lambda: patch.object(errors, "find_spec", lambda name: None if name in packages else real(name))


def failing(what: str, error: BaseException) -> Patch:
    def fail(*_given, **_named):
        raise error

    return lambda: patch(what, fail)


def one_line_less() -> None:
    write("train.de", "".join(lines("train.de")[:-1]))


CROSSED = {
    "train.de": "The man and the woman are not at home, but they have {} children, who were with him on a way to it.",
    "train.en": "Der Mann und die Frau sind nicht im Haus, aber sie haben {} Kinder, die mit ihm auf einem Weg sind.",
}


def crossed() -> None:
    for name, text in CROSSED.items():
        write(name, "".join(text.format(number) + "\n" for number in range(200)))


def zipped(name: str) -> Setup:
    def write_zip() -> None:
        with zipfile.ZipFile(name, "w") as archive:
            archive.writestr("word/document.xml", "<w>Text</w>")

    return write_zip


def damage() -> None:
    path = Path("my-model/model/model.safetensors")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def newer() -> None:
    path = Path("my-model/model/manifest.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 99}))


def unfinished() -> None:
    shutil.rmtree("my-model/model")


@contextmanager
def port_taken() -> Iterator[None]:
    with socket.socket() as other:
        with suppress(OSError):  # somebody else has it: as well
            other.bind(("127.0.0.1", 5000))
            other.listen()
        yield


@contextmanager
def few_rights() -> Iterator[None]:
    def bind(*_given: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with patch("heedful.cli.serve.socket.socket") as made:
        made.return_value.__enter__.return_value.bind = bind
        yield


def no_room() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "prepared/settings.toml")


def no_rights() -> OSError:
    return PermissionError(errno.EACCES, "Permission denied", "my-model")


def short_of_memory() -> object:
    return failing("heedful.model.seq2seq.Seq2Seq.forward", MemoryError())()


# ------------------------------------------------------------------------------------------------ the table


@dataclass(frozen=True)
class Case:
    """What one types, what is there, what it says, and how it ends."""

    name: str
    typed: str
    says: tuple[str, ...]
    code: int
    setup: Setup = lambda: None
    during: Patch = nullcontext
    why: str = ""  # of the page; cases without are only tested
    stdout: bool = field(default=False)  # where it is said

    @property
    def words(self) -> list[str]:
        return shlex.split(self.typed)[1:]


TRAIN = "heedful train train.en train.de --out new"
CLOCK = f"{TRAIN} --time 40m"
SMALL = f'recipe = "transformer-tiny"\n{TOML}\n[tokenizer]\nvocab_size = 330\n\n[train]\nsteps = 10\n'

GROUPS: dict[str, list[Case]] = {
    "Commands and options": [
        Case(
            "a command",
            "heedful tranlate my-model",
            ("no such command `tranlate`; did you mean `translate`?",),
            2,
            why="A misspelled command. `heedful` without arguments lists all commands.",
        ),
        Case(
            "an option",
            "heedful train train.en train.de --out new --tiem 40m",
            ("no such option `--tiem`; did you mean `--time`?", "heedful train --help"),
            2,
            why="A misspelled option. `heedful train --help` lists the options of the command, with examples.",
        ),
        Case(
            "a renamed option",
            "heedful translate my-model --with other-model",
            ("unknown option `--with`; it is now `--ensemble`",),
            2,
            why="An option that was renamed. The message contains the new name.",
        ),
        Case("nothing like it", "heedful frobnicate", ("no such command `frobnicate`; known: calibrate, check,",), 2),
        Case("an option of another command", "heedful --out x train", ("no such option: --out", "heedful --help"), 2),
        Case("an option without a value", TRAIN[:-4], ("'--out' requires an argument", "heedful train --help"), 2),
        Case("no model", "heedful translate", ("missing argument", "heedful translate --help"), 2),
        Case("not a number", f"{TRAIN} --steps many", ("'--steps'", "valid integer"), 2),
        Case(
            "files for prepare",
            "heedful prepare train.en train.de",
            ("unexpected argument `train.de`; pass one heedful.toml",),
            2,
        ),
        Case(
            "no quotes",
            "heedful inspect my-model Two dogs run.",
            ("unexpected argument `dogs run.`; put the sentence in quotes",),
            2,
            why="A sentence without quotes, which the shell splits into several arguments.",
        ),
    ],
    "Files": [
        Case(
            "a wrong name",
            "heedful check train.em train.de",
            ("there is no file train.em; did you mean `train.en`?",),
            3,
            why="A misspelled file name.",
        ),
        Case(
            "no such folder",
            "heedful check data/a.en data/a.de",
            ("no file data/a.en, because there is no directory data",),
            3,
        ),
        Case("a folder", "heedful check my-model", ("my-model is a directory: pass the files in it",), 2),
        Case(
            "a folder to train on",
            "heedful train my-model/model",
            ("is a directory without a heedful.toml: pass the",),
            2,
        ),
        Case(
            "one file",
            "heedful check train.en",
            ("train.en is one text file: pass one file per language",),
            2,
            why="Only one file of a pair. A corpus is two text files, one per language, or one .tsv, .csv, .xlsx, "
            ".jsonl, .tmx or .parquet file with both languages.",
        ),
        Case(
            "a table with too many columns",
            "heedful check pairs.csv --pair en-pt",
            ("it is not clear which two columns are the pair: 1", "--columns 1,2"),
            3,
            setup=lambda: write("pairs.csv", "".join(f"a {n} x,b {n} y,c {n} z\n" for n in range(9))),
            why="A table with several columns of text. Choose two, by number or by name: `--columns 2,3`.",
        ),
        Case(
            "a column that is not there",
            "heedful check pairs.csv --columns English,Portugese",
            ("has no column `Portugese` in its first row: English, Portuguese", "did you mean `Portuguese`?"),
            3,
            setup=lambda: write("pairs.csv", "English,Portuguese\nYes.,Sim.\n"),
        ),
        Case(
            "a table whose languages are not clear",
            "heedful check pairs.tsv",
            ("the languages are not certain", "add the language pair"),
            2,
            setup=lambda: write("pairs.tsv", "Yes.\tSim.\nNo.\tNão.\n"),
            why="heedful detects the languages of a table only if they are clear. State them with `--pair`.",
        ),
        Case(
            "languages that a translation memory lacks",
            "heedful check memory.tmx --pair en-fr",
            ("memory.tmx has no text in fr: its languages are en-US (1 units), pt-BR (1 units)", "--pair en-US-pt-BR"),
            3,
            setup=lambda: write(
                "memory.tmx",
                '<tmx><body><tu><tuv xml:lang="en-US"><seg>Yes.</seg></tuv><tuv xml:lang="pt-BR"><seg>Sim.</seg></tuv>'
                "</tu></body></tmx>",
            ),
        ),
        Case(
            "a workbook without the package for it",
            "heedful check pairs.xlsx --pair en-pt",
            ("reading pairs.xlsx needs fastexcel, which is not installed", "heedful[xlsx]"),
            1,
            setup=zipped("pairs.xlsx"),
            during=without("fastexcel"),
        ),
        Case(
            "three files",
            f"{TRAIN} --validation val.en val.de",
            ("got 3 files, but a corpus is two files", "--validation val.de"),
            2,
            why="Two files after one `--validation`. Repeat the option: `--validation val.en --validation val.de`.",
        ),
        Case(
            "one file of a validation set",
            "heedful check train.en train.de --validation val.en",
            ("val.en is one file of a pair: add the other file, or",),
            3,
        ),
        Case(
            "no languages",
            "heedful check one.txt two.txt",
            ("the file names do not show the languages: add the language pair, for example: --pair en-de",),
            2,
            setup=lambda: (Path("train.en").rename("one.txt"), Path("train.de").rename("two.txt")),
            why="File names without languages. heedful reads the languages from names such as train.en and train.de; "
            "for other names, use `--pair`.",
        ),
        Case("the same ending", "heedful check train.en val.en", ("both files end in .en: add the language pair",), 2),
        Case("the same file", "heedful check train.en train.en --pair en-de", ("is both source and target",), 3),
        Case(
            "half a pair of languages", "heedful check train --pair en", ("--pair en: expected two language codes",), 2
        ),
        Case(
            "lost lines",
            CLOCK,
            ("the two files have different numbers of lines: 1 (", "60 and 59; ", "--force"),
            3,
            setup=one_line_less,
            why="Files of different lengths. Line N of one file must be the translation of line N of the other. "
            "`heedful check` finds the place where this is no longer true, and `heedful check --fix` writes a copy "
            "without the wrong pairs.",
        ),
        Case(
            "an empty file",
            "heedful evaluate train.de empty.de",
            ("empty.de is empty: check that it is the right file",),
            3,
            setup=lambda: write("empty.de", ""),
        ),
        Case(
            "empty files",
            "heedful prepare heedful.toml",
            ("no pairs were found; check the files",),
            3,
            setup=lambda: (write("train.en", ""), write("train.de", "")),
        ),
        Case(
            "one line",
            CLOCK,
            ("1 pairs are too few: the autopilot needs 500", "--recipe"),
            3,
            setup=lambda: (write("train.en", "One.\n"), write("train.de", "Eins.\n")),
        ),
        Case(
            "few pairs",
            CLOCK,
            ("60 pairs are too few: the autopilot needs 500",),
            3,
            why="Too few pairs. Train on more pairs, or use a recipe to experiment with the pairs that you have.",
        ),
        Case(
            "UTF-16",
            "heedful check train.en train.de",
            ("train.en is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8",),
            3,
            setup=lambda: write("train.en", "".join(lines("train.en")).encode("utf-16")),
            why="A file in UTF-16, which Windows programs often write. heedful reads UTF-8.",
        ),
        Case(
            "Latin-1",
            "heedful prepare heedful.toml",
            ("lines cannot be read", "not UTF-8", "If the file is Latin-1, convert it with: iconv -f LATIN1 -t UTF-8"),
            3,
            setup=lambda: write("train.de", "".join(lines("train.de")).replace("a", "ä").encode("latin-1")),
            why="A file in Latin-1, an older encoding in which letters such as ä have other bytes than in UTF-8.",
        ),
        Case(
            "Latin-1, and few",
            CLOCK,
            ("heedful check found errors in the corpus:", "lines that cannot be read: ", "--force"),
            3,
            setup=lambda: write("train.de", "".join(lines("train.de")).replace("a", "ä").encode("latin-1")),
        ),
        Case(
            "a document",
            "heedful translate my-model letter.docx",
            ("letter.docx is not text but a ZIP archive, like .docx and .xlsx files; unpack it, or save",),
            3,
            setup=zipped("letter.docx"),
            why="A Word document as input. The input must be plain text, not a document, a PDF or an archive.",
        ),
        Case(
            "subtitles",
            "heedful translate my-model film.srt",
            ("film.srt is not plain text: its times would be translated as words. Extract", "add --as-text"),
            2,
            setup=lambda: write("film.srt", "1\n00:00:01,000 --> 00:00:02,000\nthe dog\n"),
            why="A file with times, tags or keys, such as subtitles, HTML or JSON.",
        ),
        Case(
            "binary data in a text file",
            "heedful translate my-model data.txt",
            ("data.txt is not text: it has zero bytes. If it is UTF-16 text, convert it to UTF-8",),
            3,
            setup=lambda: write("data.txt", bytes(range(200))),
        ),
        Case(
            "packed, and not called so",
            "heedful check train.en train.de",
            ("train.en is not text but compressed with gzip; rename it to end in .gz",),
            3,
            setup=lambda: write("train.en", gzip.compress(Path("train.en").read_bytes())),
        ),
        Case(
            "a document as a corpus",
            "heedful check all.docx --pair en-de",
            ("one file of a pair", ".tmx or .parquet"),
            3,
            setup=zipped("all.docx"),
        ),
        Case(
            "the test in the training",
            "heedful check train.en train.de --test val.en --test val.de",
            ("training pairs that are also in", "val.en"),
            3,
            stdout=True,
            setup=lambda: [write(f"val.{one}", "".join(lines(f"train.{one}")[:20])) for one in ("en", "de")],
        ),
        Case(
            "names that are crossed",
            "heedful check train.en train.de",
            ("a side is not in the language it should be in", "looks like de, not en"),
            3,
            stdout=True,
            setup=crossed,
        ),
    ],
    "Settings": [
        Case(
            "a key",
            "heedful prepare heedful.toml",
            ("heedful.toml: unknown key `tokenizer.vocab_sise`; did you mean `vocab_size`?",),
            2,
            setup=lambda: write("heedful.toml", TOML + "\n[tokenizer]\nvocab_sise = 4000\n"),
            why="A misspelled key in heedful.toml. heedful rejects unknown keys.",
        ),
        Case(
            "a key in the wrong place",
            f"{TRAIN} --set batch_tokens=8192",
            ("unknown key `batch_tokens`; did you mean `train.batch_tokens`?",),
            2,
            why="A key without its section. Write the section first: `--set train.batch_tokens=8192`.",
        ),
        Case("--set without =", f"{TRAIN} --set train.batch_tokens", ("expected key=value, such as",), 2),
        Case(
            "a value",
            "heedful train heedful.toml",
            ("heedful.toml: `model.encoder.cell` = 'lstn' is not known; did you mean `lstm`?",),
            2,
            setup=lambda: write("heedful.toml", f'recipe = "lstm-bahdanau"\n{TOML}\n[model.encoder]\ncell = "lstn"\n'),
            why="A misspelled value of a setting.",
        ),
        Case(
            "a recipe",
            f"{TRAIN} --recipe transfomer-tiny",
            ("there is no recipe `transfomer-tiny`; did you mean `transformer-tiny`?",),
            2,
            why="A misspelled name of a recipe.",
        ),
        Case(
            "Norwegian",
            "heedful prepare heedful.toml",
            ("heedful.toml is not TOML: Invalid value", 'put text in quotes, such as source = "no"'),
            2,
            setup=lambda: write("heedful.toml", TOML.replace('"de"', "no")),
            why='Text without quotes in heedful.toml. Write `target = "no"`. On the command line, text needs no '
            "quotes: `--pair en-no`.",
        ),
        Case(
            "a truth value",
            "heedful prepare heedful.toml",
            ("`target` = false is not text; put text in quotes",),
            2,
            setup=lambda: write("heedful.toml", TOML.replace('"de"', "false")),
        ),
        Case(
            "a language's name",
            "heedful prepare heedful.toml",
            ("'in German': a language is a code, such as en",),
            2,
            setup=lambda: write("heedful.toml", TOML.replace('"de"', '"in German"')),
        ),
        Case(
            "a missing key",
            "heedful prepare heedful.toml",
            ("heedful.toml: `target` is missing",),
            2,
            setup=lambda: write("heedful.toml", TOML.replace('target = "de"\n', "")),
        ),
        Case(
            "settings in Latin-1",
            "heedful prepare heedful.toml",
            ("heedful.toml is not UTF-8 (", "save it as UTF-8"),
            2,
            setup=lambda: write("heedful.toml", f"# caf\xe9\n{TOML}".encode("latin-1")),
        ),
        Case("no such file", "heedful train heedfull.toml", ("there is no file heedfull.toml: check the path",), 2),
        Case("no such table", "heedful train nothere.tsv", ("there is no file nothere.tsv",), 3),
        Case(
            "no unit",
            f"{TRAIN} --time 40",
            ("a time is written like 90s, 40m, 1h30m or 2d, not 40",),
            2,
            why="A time without a unit. Write `--time 40m` for 40 minutes.",
        ),
        Case("no time", f"{TRAIN} --time 0m", ("a time must be longer than zero, not '0m'",), 2),
        Case("fewer than no steps", f"{TRAIN} --steps -1", ("`train.steps`: input should be greater than", "-1"), 2),
        Case("no steps", f"{TRAIN} --steps 0", ("`train.steps`: input should be greater than", "not 0"), 2),
        Case("two ends", f"{TRAIN} --time 40m --steps 100", ("use --time or --steps, not both",), 2),
        Case(
            "no --out",
            "heedful train train.en train.de --time 40m",
            ("no run directory: add one, for example: --out my-model",),
            2,
            why="No directory for the run. heedful writes the model and the report to `--out`.",
        ),
        Case("no GPU", f"{CLOCK} --set train.device=gpu", ("unknown train.device = gpu; known: cpu, cuda, mps",), 2),
    ],
    "Directories, disk and memory": [
        Case(
            "another run is there",
            "heedful train old.toml --set train.learning_rate=0.1",
            ("my-model was started with other settings:", "train.learning_rate: 0.005 before, 0.1 now", "(--out)"),
            2,
            why="Other settings for an existing run. A run cannot change its settings; start a new run instead.",
        ),
        Case(
            "--out is a file",
            CLOCK.replace("new", "train.en"),
            ("train.en is a file or is inside a file; choose a directory",),
            2,
            why="A file as `--out`. `--out` must be a directory; heedful creates it if it does not exist.",
        ),
        Case(
            "no rights",
            CLOCK,
            ("permission denied (my-model): no permission to read or write there; choose another path",),
            1,
            during=failing("heedful.training.metrics_log.Path.mkdir", no_rights()),
        ),
        Case(
            "a full disk",
            "heedful prepare heedful.toml --set tokenizer.vocab_size=330",
            ("no space left on device (prepared/settings.toml): free some space and rerun the command",),
            1,
            during=failing("heedful.data.prepare.update_text", no_room()),
            why="A full disk. heedful keeps finished work. During training, a full disk prevents checkpoints but does "
            "not stop the run ([docs/train.md](train.md)).",
        ),
        Case(
            "no memory",
            "heedful train heedful.toml --out new",
            ("out of memory in a batch of", "--set train.micro_batches=2", "train.batch_tokens"),
            1,
            setup=lambda: write("heedful.toml", SMALL),
            during=short_of_memory,
            why="Not enough memory. Linux may also kill the process; then the only message is `Killed`. Use smaller "
            "batches in both cases.",
        ),
        Case(
            "Ctrl-C",
            "heedful prepare heedful.toml",
            ("interrupted; rerun the command to resume from the last saved state",),
            130,
            during=failing("heedful.data.prepare.prepare", KeyboardInterrupt()),
            why="Ctrl-C. heedful keeps finished work. `heedful train` finishes and saves the current step before it "
            "exits.",
        ),
        Case(
            "Ctrl-C, and nothing to keep",
            "heedful check train.en train.de",
            ("heedful: interrupted\n",),
            130,
            during=failing("heedful.corpus.check.examine_corpora", KeyboardInterrupt()),
        ),
    ],
    "Models": [
        Case(
            "no such model",
            "heedful translate nowhere",
            ("there is no model in nowhere: the directory does not exist; check the path",),
            1,
            why='A misspelled directory. In Python, `heedful.load("nowhere")` raises a `HeedfulError` with this '
            "message.",
        ),
        Case(
            "not a model",
            "heedful translate prepared",
            ("neither this directory nor its subdirectory `model` contains manifest.json",),
            1,
            setup=lambda: Path("prepared").mkdir(),
        ),
        Case(
            "a file of a model", "heedful translate my-model/model/model.safetensors", ("pass the model directory",), 1
        ),
        Case(
            "not finished",
            "heedful translate my-model",
            ("there is no model in my-model yet: training is not finished",),
            1,
            setup=unfinished,
            why="A run that is not finished. heedful writes the model when training ends.",
        ),
        Case(
            "damaged",
            "heedful translate my-model",
            ("is damaged: its sha256 differs from the manifest. Download or copy the whole",),
            1,
            setup=damage,
            why="A damaged model. Common causes are an incomplete copy and a faulty disk.",
        ),
        Case(
            "newer",
            "heedful translate my-model",
            ("was written by a newer heedful", "pip install --upgrade heedful"),
            1,
            setup=newer,
        ),
        Case(
            "text, not a file",
            "heedful translate my-model 'Good morning'",
            ("there is no file Good morning; to translate a text, pipe it in: echo 'Good morning' | heedful",),
            2,
            why="A text as an argument. `heedful translate` reads text from a file or a pipe.",
        ),
        Case(
            "text without quotes",
            "heedful translate my-model Good morning",
            ("unexpected argument `morning`; pipe the text in",),
            2,
        ),
        Case("a file of like name", "heedful translate my-model tran.en", ("tran.en; did you mean `train.en`?",), 2),
        Case(
            "a folder of texts",
            "heedful translate my-model my-model",
            ("my-model is a directory: pass a file in it",),
            2,
        ),
        Case(
            "no references",
            "heedful evaluate train.de",
            ("no reference translations: add the reference file, for example: heedful evaluate",),
            2,
        ),
        Case(
            "unequal lines",
            "heedful evaluate train.de val.de",
            ("train.de has 60 lines and val.de has 12, but line N of one must match line N of the other",),
            3,
            why="Files that do not match. They belong to different test sets, or one of them has lost lines.",
        ),
        Case(
            "a model without a source",
            "heedful evaluate my-model val.de",
            ("my-model is a model: add the text to translate, for example: --source",),
            2,
        ),
        Case(
            "the wrong order",
            "heedful evaluate val.de my-model --source val.en",
            (
                "my-model is a directory, but a text file is expected here",
                "The model is the first argument of heedful evaluate",
            ),
            2,
        ),
        Case("a metric", "heedful evaluate train.de train.de --metric blue", ("`blue`; did you mean `bleu`?",), 1),
        Case(
            "no sentence",
            "heedful inspect en-de",
            ("there is nothing to show: pass a sentence, for example: heedful inspect",),
            1,
            setup=lambda: Path("my-model/model").rename("en-de"),
            why="No sentence to inspect. Only for a run can you omit the sentence: `heedful inspect my-run` shows how "
            "the attention changed during training.",
        ),
        Case(
            "no sentence for a lecture",
            "heedful inspect en-de --lecture lecture.toml",
            ("there is nothing to show: pass a sentence, for example: heedful inspect",),
            1,
            setup=lambda: (Path("my-model/model").rename("en-de"), write("lecture.toml", LECTURE)),
        ),
        Case("no such file of sentences", "heedful inspect my-model --file vall.en", ("did you mean `val.en`?",), 3),
        Case(
            "an engine",
            "heedful export my-model --to ctranslate",
            ("unknown format `ctranslate`; did you mean `ctranslate2`?",),
            2,
            why="A misspelled export format.",
        ),
        Case(
            "a rounding",
            "heedful export my-model --to onnx --quantization int8",
            ("onnx does not support quantization `int8`",),
            2,
        ),
        Case(
            "no probes",
            "heedful export my-model --probes empty.en",
            ("empty.en contains no sentences",),
            2,
            setup=lambda: write("empty.en", "\n"),
        ),
        Case(
            "probes in Latin-1",
            "heedful export my-model --probes latin.en",
            ("--probes latin.en is not UTF-8; save it as UTF-8",),
            2,
            setup=lambda: write("latin.en", "caf\xe9\n".encode("latin-1")),
        ),
        Case(
            "an export over a model",
            "heedful export my-model --out my-model",
            ("already exists: choose another path",),
            1,
        ),
    ],
    "Lectures": [
        Case(
            "a panel",
            "heedful inspect my-model 'the dog' --lecture lecture.toml",
            ("lecture.toml: slide 2: `panel` is 'mapp'; did you mean `map`?",),
            2,
            setup=lambda: write("lecture.toml", LECTURE.replace("map", "mapp")),
            why="A misspelled panel in a lecture file. heedful also rejects unknown keys.",
        ),
        Case(
            "a key of the state",
            "heedful inspect my-model 'the dog' --lecture lecture.toml",
            ("lecture.toml: slide 2: `state`: unknown key `stpe` in `stpe=1`; did you mean `step`?",),
            2,
            setup=lambda: write("lecture.toml", LECTURE.replace("step", "stpe")),
            why="A misspelled key in the state of a slide.",
        ),
        Case(
            "a step that does not exist",
            "heedful inspect my-model 'the dog' --lecture lecture.toml",
            ("lecture.toml: slide 2: there is no step 999: use 1 to ",),
            2,
            setup=lambda: write("lecture.toml", LECTURE.replace("step=1", "step=999")),
        ),
        Case(
            "one bracket",
            "heedful inspect my-model 'the dog' --lecture lecture.toml",
            ("lecture.toml: write [[slide]], with two brackets on each side, above the keys of each slide",),
            2,
            setup=lambda: write("lecture.toml", '[slide]\npanel = "map"\n'),
            why="One pair of brackets instead of two. In TOML, an element of a list has two.",
        ),
        Case(
            "no lecture file",
            "heedful inspect my-model 'the dog' --lecture lectures.toml",
            ("there is no lecture file lectures.toml; did you mean `lecture.toml`?",),
            2,
            setup=lambda: write("lecture.toml", LECTURE),
        ),
        Case(
            "a lecture over a lecture",
            "heedful inspect my-model 'the dog' --write-lecture lecture.toml",
            ("lecture.toml already exists: choose another name, or delete it first",),
            2,
            setup=lambda: write("lecture.toml", LECTURE),
            why="A lecture file that exists. heedful does not overwrite your slides.",
        ),
    ],
    "Packages": [
        Case(
            "torch",
            CLOCK,
            ("heedful train needs torch, which is not installed. Install it with: pip install 'heedful[train]'",),
            1,
            during=without("torch"),
            why="A missing package. `heedful info` lists the installed packages, the missing packages, and their uses.",
        ),
        Case(
            "polars",
            "heedful check train.en train.de",
            ("heedful check needs polars", "'heedful[corpus]'"),
            1,
            during=without("polars"),
        ),
        Case(
            "serve",
            "heedful serve my-model",
            ("heedful serve needs fastapi", "pip install 'heedful[serve]'"),
            1,
            during=without("fastapi", "uvicorn"),
        ),
        Case(
            "export",
            "heedful export my-model",
            ("needs ctranslate2", "pip install 'heedful[export]'"),
            1,
            during=without("ctranslate2"),
        ),
    ],
    "The server": [
        Case(
            "the port is taken",
            "heedful serve my-model",
            ("port 5000 is in use", "Use another port: --port 5001"),
            1,
            during=port_taken,
            why="A port that another server uses, perhaps one that you started earlier.",
        ),
        Case(
            "a port of the system",
            "heedful serve my-model --port 80",
            ("--port 80 is reserved for the system: use a port above 1023",),
            2,
            during=few_rights,
        ),
        Case("no port", "heedful serve my-model --port 99999", ("--port 99999: ports go from 1 to 65535",), 2),
        Case(
            "open to all",
            "heedful serve my-model --host 0.0.0.0",
            ("accepts requests from other machines: add --keys keys.txt",),
            2,
            why="A server for other machines, without keys. Everyone who can reach the machine could use the server. "
            "[docs/serve.md](serve.md) explains keys.",
        ),
        Case(
            "no keys",
            "heedful serve my-model --keys keys.txt",
            ("there is no such file. To create it: heedful serve MODEL",),
            2,
        ),
        Case(
            "a key for no model",
            "heedful serve my-modle --keys keys.txt --new-key ann",
            ("there is no model in my-modle",),
            1,
        ),
        Case(
            "a model twice",
            "heedful serve my-model my-model",
            ("two models have the name `my-model`", "Serve each model once"),
            2,
            why="Several models with the same name. Clients select a model by its name.",
        ),
        Case(
            "half of a certificate",
            "heedful serve my-model --tls-cert cert.pem",
            ("--tls-cert needs --tls-key",),
            2,
        ),
        Case("an engine", "heedful serve my-model --engine onx", ("unknown engine `onx`; did you mean `onnx`?",), 2),
    ],
}
CASES = {f"{group}, {case.name}": case for group, cases in GROUPS.items() for case in cases}


# ------------------------------------------------------------------------------------------------ what it says


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    stdout: str
    stderr: str
    code: int
    error: type[BaseException] | None


@cache
def said(name: str) -> Said:
    """Make a mistake, in a place of its own."""
    case, home = CASES[name], Path.cwd()
    out, err, caught = io.StringIO(), io.StringIO(), []
    real = app.exit_with_error

    def stop(message: str, code: int) -> None:
        caught.append(sys.exc_info()[0])
        real(message, code)

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve() / "here"
        shutil.copytree(place(), folder)
        text = (folder / "old.toml").read_text(encoding="utf-8").replace(place().as_posix(), folder.as_posix())
        (folder / "old.toml").write_text(text, encoding="utf-8")
        os.chdir(folder)
        try:
            case.setup()
            with (
                case.during(),
                patch.object(sys, "argv", ["heedful", *case.words]),
                patch.object(app, "exit_with_error", stop),
                patch.dict(os.environ, {"COLUMNS": "200"}),
                patch.object(sys, "stdin", io.StringIO()),
                redirect_stdout(out),
                redirect_stderr(err),
                pytest.raises(SystemExit) as end,
            ):
                app.main()
        finally:
            os.chdir(home)
        texts = [one.getvalue().replace(f"{folder.as_posix()}/", "") for one in (out, err)]
    return Said(texts[0], texts[1], end.value.code or 0, caught[0] if caught else None)


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_answered_in_words(name):
    case, found = CASES[name], said(name)
    told = found.stdout if case.stdout else found.stderr
    for part in case.says:
        assert part in told, found
    assert found.code == case.code, found
    assert "Traceback" not in found.stdout + found.stderr
    if not case.stdout:
        message = found.stderr[found.stderr.index("heedful: ") :]
        assert len(message.splitlines()) <= 3, message


def test_python_says_the_same():
    with pytest.raises(HeedfulError, match=r"there is no model in .*nowhere: the directory does not exist"):
        heedful.load("nowhere")


def test_every_kind_of_error_is_among_them():
    kinds = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, HeedfulError)}
    met = {found.error for found in map(said, CASES)}
    assert kinds - {errors.UnexpectedArgument} <= met  # of a Python function: see tests/test_public_api.py


# ------------------------------------------------------------------------------------------------ the page


def shown(name: str) -> str:
    """A mistake as the page tells it: what was typed, what it says, what to do."""
    case = CASES[name]
    message = said(name).stderr
    message = message[message.index("heedful: ") :].rstrip()
    rows = [row for line in message.split("\n") for row in wrap(line, WIDTH, subsequent_indent="    ") or [""]]
    code = "\n".join([f"$ {case.typed}", *rows])
    return "\n".join([*wrap(case.why, 118), "", "```console", code, "```", ""])


def written() -> str:
    """All mistakes that the page tells of."""
    parts = []
    for group, cases in GROUPS.items():
        told = [case for case in cases if case.why]
        if told:
            parts += [f"### {group}\n", *(shown(f"{group}, {case.name}") for case in told)]
    return "\n".join(parts) + "\n"


def whole() -> str:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{written()}{END}{rest.split(END)[1]}"


def test_the_page_says_what_the_program_says():
    assert PAGE.read_text(encoding="utf-8") == whole(), "run `python tests/test_mistakes.py` to write it again"


def test_the_page_tells_of_thirty():
    assert sum(bool(case.why) for case in CASES.values()) >= 30


def test_exit_codes_are_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    told = {int(code): what for code, what in re.findall(r"^\| (\d+) \| (.*?) \|$", text, re.M)}
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, HeedfulError)]
    own = [one.exit_code for one in kinds if "exit_code" in vars(one)]
    assert len(own) == len(set(own))
    assert set(own) | {case.code for case in CASES.values()} <= set(told)
    from heedful.exporters.parity import ProofError
    from heedful.training.signals import EXIT_CODES

    assert {ProofError.exit_code, *EXIT_CODES.values()} <= set(told)


if __name__ == "__main__":
    PAGE.write_text(whole(), encoding="utf-8", newline="\n")
    shutil.rmtree(place())
