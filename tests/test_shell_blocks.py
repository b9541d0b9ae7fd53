"""What the docs tell to type can be typed: every line of every shell block runs, or is in NOT_RUN with the reason.

All lines of a page run in order in a folder of their own, a copy of the world that `world` builds: a small corpus under
the names that pages use, and small trained models. A .toml that a page shows under its name is there too. A new page
needs nothing but names that are there; a line that takes long is made short by INSTEAD. An entry of either table that
no line needs any more is an error.
"""

import gzip
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import heedful
from heedful import config
from heedful.bundle import open_bundle
from heedful.exporters import marian
from heedful.training.api import train
from support.graph_runs import graph_settings, write_trees
from support.picture_runs import language_model_settings, picture_settings, write_pictures, write_sentences
from support.training_runs import WORDS, settings_of, write_corpus

ROOT = Path(__file__).parents[1]
MADE = ROOT / "docs" / "reference"  # by Sphinx, from the code
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if MADE not in page.parents),
]
SOUNDS = str.maketrans("abcdefgh", "ʌβʃðεφɣχ")
TOO_LONG = 600  # seconds of one line: it hangs

INSTEAD = {  # pattern -> what is put in its place; minutes become seconds, nothing else changes
    r"^(?!heedful init )(.*)--(?:time|steps) \S+": r"\1--steps 3",
    r"^heedful train (?=.*--out )": "heedful train --set tokenizer.vocab_size=460 --set train.batch_tokens=600 "
    "--set train.validate_pairs=4 ",  # Few to validate and to test on: a model of three steps rambles.
    r"^heedful train first/heedful.toml$": "for f in first/data/valid.* first/data/test.*; do head -n 4 $f > few && "
    "mv few $f; done; heedful train first/heedful.toml --steps 3",
    r"--workers \d+": "--workers 2",
}
NOT_RUN = {  # pattern, from the beginning of a line -> why
    r"(\S+/)?(pip|python -m venv|comet-)": "installs packages",
    r"scripts/check": "would run this very test",
    r"heedful serve (?!.*--new-key)": "goes on until it is stopped: tests/serve starts and stops it",
    r"curl .*127\.0\.0\.1": "asks a server: tests/serve/test_app.py asks the same",
    r"(\w+=\S+ )*(docker|kubectl|systemctl) ": "needs containers or systemd: see tests/test_deploy.py",
    r"(\w+=\S+ )*ray ": "starts a cluster: tests/corpus/test_shards.py starts one",
    r"heedful .*FIRST:": "needs a cluster: tests/corpus/test_shards.py and tests/translation/test_bulk.py have one",
    r"torchrun ": "starts three processes with PyTorch: tests/faults/test_ranks.py starts them",
}


def lines_of(page: Path) -> list[str]:
    """The commands of a page: lines of its shell blocks, those that go on joined, without those that only comment."""
    blocks = re.findall(r"^```(?:sh|bash|shell)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    joined = "".join(blocks).replace("\\\n", " ")
    return [line for line in map(str.strip, joined.split("\n")) if line and not line.startswith("#")]


def files_of(page: Path) -> dict[str, str]:
    """Settings that a page shows whole, under their name."""
    return dict(re.findall(r"^`(\S+\.toml)`:\n\n```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M))


LINES = {page: lines_of(page) for page in PAGES}
EVERY = [line for lines in LINES.values() for line in lines]


def why_not(line: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, line)), None)


def shortened(line: str) -> str:
    for pattern, by in INSTEAD.items():
        line = re.sub(pattern, by, line)
    return line


@pytest.mark.parametrize("pattern", [*NOT_RUN, *INSTEAD])
def test_every_exception_is_needed(pattern):
    run = [line for line in EVERY if why_not(line) is None]
    found = [line for line in EVERY if re.match(pattern, line)] if pattern in NOT_RUN else run
    assert any(re.search(pattern, line) for line in found), "no line needs this any more"


# ------------------------------------------------------------------------------------------------------- the world


def texts(count: int, seed: int) -> list[str]:
    """Sentences of a small language, and the same with other words."""
    draw = random.Random(seed)
    rows = [draw.choices(list(WORDS), k=draw.randint(3, 9)) for _ in range(count)]
    sides = rows, [[WORDS[word] for word in row] for row in rows]
    return ["".join(" ".join(row) + "\n" for row in side) for side in sides]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with all that the docs name."""
    place = write_corpus(tmp_path_factory.mktemp("world"), pairs=600)
    few, links = 8, "".join(" ".join(f"{at}-{at}" for at in range(3)) + "\n" for _ in range(8))
    counts = {"valid": 40, "test": few, "mine": 80, "new": 80, "news": few, "more": few}
    for number, (name, count) in enumerate(counts.items()):
        for side, text in zip(("en", "de"), texts(count, 100 + number), strict=True):
            (place / f"{name}.{side}").write_text(text, encoding="utf-8")
    source, target = ((place / f"test.{side}").read_text(encoding="utf-8") for side in ("en", "de"))
    for name in ("probes.en", "some.en", "crawl.en", "book.txt"):
        (place / name).write_text(source, encoding="utf-8")
    (place / "crawl.en.gz").write_bytes(gzip.compress(source.encode()))
    for name in ("other.de", "test.hypotheses", "old.hypotheses", "new.hypotheses"):
        (place / name).write_text(target.replace("rot", "blau"), encoding="utf-8")
    for name in ("test.links", "gold.links", "found.links"):
        (place / name).write_text(links, encoding="utf-8")
    shutil.copy(ROOT / "docs" / "lectures" / "ten-slides.toml", place)
    pairs = list(zip(source.splitlines(), target.splitlines(), strict=True))
    (place / "corpus.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in pairs), encoding="utf-8")
    units = "".join(f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv></tu>' for en, _ in pairs)
    (place / "memory.en.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>', encoding="utf-8")
    words = "I would like a black cat , man dog king house woman queen"
    (place / "corpus.txt").write_text(f"{words} .\n" * 8 + source * 3, encoding="utf-8")
    (place / "corpus.txt.gz").write_bytes(gzip.compress((place / "corpus.txt").read_bytes()))
    reviews = [(text, "negative" if "alt" in text else "positive") for text in texts(600, 200)[1].splitlines()]
    (place / "reviews.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in reviews), encoding="utf-8")
    draw = random.Random(4)
    spelled = ["".join(draw.choices("abcdefgh", k=draw.randint(3, 7))) for _ in range(400)]
    (place / "words.tsv").write_text(
        "".join(f"{word}\t{word.translate(SOUNDS)}\n" for word in spelled), encoding="utf-8"
    )
    for name in ("new-reviews.txt", "test.txt"):
        (place / name).write_text("".join(f"{text}\n" for text, _ in reviews[:few]), encoding="utf-8")
    (place / "test.labels").write_text("".join(f"{label}\n" for _, label in reviews[:few]), encoding="utf-8")
    (place / "trace.json").write_text(TRACE.replace("'", '"'), encoding="utf-8")

    (place / "heedful.toml").write_text(config.to_toml(settings(Path(), "run", "pre", steps=3)), encoding="utf-8")
    run = train(settings(place, "my-model", "pre", steps=150)).parent
    for name in ("other-model", "old-model", "new-model", "en-de"):
        shutil.copytree(run, place / name)
    for name, rounding in (("my-export", "float32"), ("my-int8", "int8")):
        heedful.export(run, place / name, to="ctranslate2", quantization=rounding)
    write_trees(place, count=60, name="graphs")
    trees = write_trees(place / "trees", count=60)
    shutil.copy(trees / "graphs" / "train1.npz", place / "new-graph.npz")
    train(graph_settings(trees, place / "my-graphs", steps=20))
    squares = write_pictures(place / "squares", count=40)
    shutil.copy(squares / "pictures" / "train0.png", place / "cat.png")
    train(picture_settings(squares, place / "my-captions", steps=20))
    language_model = train(language_model_settings(write_sentences(place / "squares"), place / "my-lm", steps=20))
    shutil.copytree(language_model.parent, place / "my-language-model")
    theirs = train(settings(place, "theirs", "post", steps=1))
    marian.write(open_bundle(theirs), place / "opus-mt-en-de")
    return place


def settings(place: Path, run: str, norm: str, steps: int) -> config.Settings:
    """A Transformer that learns these words in seconds, well enough to be rounded."""
    layer = {"kind": "transformer", "layers": 1, "heads": 4, "feedforward_size": 128, "norm": norm}
    model = {
        "width": 64,
        "positions": "sinusoidal",
        "scale_embeddings": True,
        "tie_embeddings": "all",
        "encoder": layer,
        "decoder": layer,
    }
    quick = {"steps": steps, "validate_every": steps, "save_every": steps, "batch_tokens": 1024, "micro_batches": 1}
    pieces = {"kind": "bpe", "vocab_size": 460}
    return settings_of(place, place / run, model=model, tokenizer=pieces, exact=False, ema=False, **quick)


TRACE = """{'format': 'heedful-trace', 'version': 1, 'sentences': [{'name': 'mine', 'logp': -0.1, 'score': -0.1,
'source': {'text': 'house', 'pieces': [{'text': ' house', 'end': 5, 'word': 0}]},
'target': {'text': 'Haus', 'pieces': [{'text': ' Haus', 'start': 0, 'end': 4, 'word': 0}]},
'steps': [{'logp': -0.1, 'top': [[' Haus', -0.1], [' Heim', -2.4]]}]}]}"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """PATH with a `heedful` in front that needs no time to start; no browser is opened."""
    folder = tmp_path_factory.mktemp("bin")
    door, script = folder / "door", Path(__file__).parent / "support" / "fork_server.py"
    command = folder / "heedful"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{script}" "{door}" "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    given = {**os.environ, "PATH": path, "BROWSER": "true", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen([sys.executable, script, door], stdout=subprocess.PIPE, env=given, start_new_session=True)
    try:
        assert server.stdout.readline() == b"ready\n"
        yield given
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has neither bash nor fork")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if LINES[page]], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_every_line_runs(page, world, environment, tmp_path):
    here, made = tmp_path / "world", set[str]()
    shutil.copytree(world, here, symlinks=True)
    for name, text in files_of(page).items():
        (here / name).write_text(text, encoding="utf-8")
    for line in LINES[page]:
        if why_not(line):
            continue
        out = re.search(r"--(?:out|bulk \S+) (\S+)", line)
        if out and (out[1] not in made or re.search("heedful train|--bulk", line)):
            remove(here / out[1])  # nothing that is there is written over
        said = typed(shortened(line), here, environment)
        assert said is None, f"{page.name}: {line}\n{said}"
        if out:
            made.add(out[1])
        # Three steps taught it nothing: what comes next is typed with one that has learned.
        if out and line.startswith("heedful train"):
            assert (here / out[1] / "model" / "model.safetensors").is_file()
            remove(here / out[1])
            trained = world / out[1]
            shutil.copytree(trained if trained.exists() else world / "my-model", here / out[1])


def typed(line: str, here: Path, environment: dict[str, str]) -> str | None:
    """What a line said before it failed; None if it did not."""
    with (here.parent / "said").open("w+b") as said:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line], cwd=here, env=environment, stdin=subprocess.DEVNULL,
            stdout=said, stderr=said, timeout=TOO_LONG, check=False,
        )  # fmt: skip
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    return f"ended with {done.returncode}:\n{text[-3000:]}" if done.returncode else None


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
