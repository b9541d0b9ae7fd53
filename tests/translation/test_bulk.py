"""Every line once, in its place, whatever is killed and when; and the same bytes however many were at work."""

import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import heedful
from heedful.cli.app import app
from heedful.corpus.launchers import LocalLauncher, RayLauncher
from heedful.corpus.shards import read_record
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.training.api import train
from heedful.translation import bulk
from heedful.translation.bulk import ENGINE_PACKAGES, BulkSummary, plan_pieces, read_lines, translate_file
from heedful.translation.loading import ENGINES
from heedful.translation.translator import TranslationOptions
from support import ray_cluster as raycluster
from support.timeouts import PATIENCE
from support.training_runs import MODEL, WORDS, settings_of, write_corpus

ODD = [b"a red house", b"", b"the old man\r", b"\xff\xfe", "ein 🐶 \u2028 x".encode(), b" ", b"the dog " * 90]
PIECE = 600  # bytes
SMALL = f"import heedful.translation.bulk as bulk; bulk.MIN_PIECE_BYTES = {PIECE}; from heedful.cli import main; main()"
posix = pytest.mark.skipif(os.name != "posix", reason="kills processes")
ray_runs_here = pytest.mark.skipif(bool(raycluster.why_not()), reason=raycluster.why_not())


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A small model (`run`) and its export (`export`), and the export of one that has learned little (`another`)."""
    folder = write_corpus(tmp_path_factory.mktemp("bulk"), pairs=120)
    pieces = {"kind": "bpe", "vocab_size": 330}
    for name, steps in (("run", 200), ("other", 20)):
        train(settings_of(folder, folder / name, model=MODEL, tokenizer=pieces, steps=steps))
    heedful.export(folder / "run", folder / "export", to="ctranslate2")
    heedful.export(folder / "other", folder / "another", to="ctranslate2")
    return folder


@pytest.fixture
def small(monkeypatch) -> None:
    monkeypatch.setattr(bulk, "MIN_PIECE_BYTES", PIECE)


@pytest.fixture
def text(tmp_path) -> Path:
    """Some 20 pieces, with odd lines among them."""
    draw = random.Random(2)
    lines = [" ".join(draw.choices(list(WORDS), k=draw.randint(1, 12))).encode() for _ in range(300)]
    for place, line in zip(range(20, 300, 40), ODD, strict=True):
        lines[place] = line
    path = tmp_path / "in.en"
    path.write_bytes(b"\n".join(lines))
    return path


def command(*arguments: object, **popen) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", SMALL, "translate", *map(str, arguments)], **popen)


# ------------------------------------------------------------------------------------------------------------ cuts


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"bc", b"\xff", b"\r", b"\n\n"])).map(b"".join), st.integers(1, 9)
)
def test_the_pieces_of_any_file_are_its_lines(content, size):
    stream = io.BytesIO(content)
    ranges = [(begin, begin + size) for begin in range(0, len(content), size)]
    pieces = [list(read_lines(stream, *one)) for one in ranges]
    lines = content.split(b"\n")
    assert [line for some in pieces for line in some] == (lines if lines[-1] else lines[:-1])


def test_a_piece_reads_no_more_than_itself_and_one_line(tmp_path):
    class Counting(io.BytesIO):
        taken = 0

        def readline(self, size=-1):
            line = super().readline(size)
            self.taken += len(line)
            return line

    stream = Counting(b"0123456789abcde\n" * 1000 + b"x" * 100_000)
    for begin in range(0, 116_000, 500):
        stream.taken = 0
        found = list(read_lines(stream, begin, begin + 500))
        assert stream.taken <= 500 + 32 or found[-1][:1] == b"x"
    assert found == []


@pytest.mark.parametrize(("size", "pieces"), [(0, 0), (1, 1), (1 << 19, 1), ((1 << 19) + 1, 2), (1 << 40, 1 << 14)])
def test_pieces_grow_when_there_would_be_too_many(tmp_path, size, pieces):
    with (tmp_path / "text").open("wb") as file:
        file.truncate(size)
    shards, each = plan_pieces(tmp_path / "text", tmp_path / "parts")
    assert len(shards) == pieces
    assert (pieces - 1) * each < max(size, 1) <= max(1, pieces * each)


# ------------------------------------------------------------------------------------------------- what it becomes


def test_a_piece_is_what_the_translator_says_of_its_lines(models, text, tmp_path, small):
    told = []
    found = translate_file(
        models / "export", text, tmp_path / "out", beam=2, launcher=LocalLauncher(1), progress=told.append
    )
    translator = heedful.load(models / "export", threads=1)
    expected, counts = [], 0
    with text.open("rb") as stream:
        for begin in range(0, text.stat().st_size, PIECE):
            lines = [
                line.removesuffix(b"\r").decode(errors="replace") for line in read_lines(stream, begin, begin + PIECE)
            ]
            answers = list(translator.stream([lines], TranslationOptions(beam=2, tokens=False)))
            expected += [one.text for one in answers]
            counts += sum(len(one.flags) for one in answers)
    assert (tmp_path / "out").read_bytes() == "".join(f"{line}\n" for line in expected).encode()
    assert (found.lines, found.new_lines, found.blank, found.replaced) == (300, 300, 2, 1)
    assert sum(map(bool, expected)) > 250  # it has learned to say something
    assert sum(found.flags.values()) == counts > 0
    assert (told[-1].done, told[-1].shards, told[-1].pairs) == (len(told) - 1, len(told) - 1, 300)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en", "out"]


@pytest.mark.parametrize("options", [[], ["--json"], ["--beam", "1", "--prefix", "das", "--length-penalty", "0.5"]])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b"\r\n"])
def test_it_is_what_the_plain_command_says(models, tmp_path, options, end):
    """Where the two translate the same lines together: a file of one window."""
    (tmp_path / "in").write_bytes(b"\n".join(ODD) + end)
    run = CliRunner()
    plain = run.invoke(app, ["translate", str(models / "export"), str(tmp_path / "in"), "--threads", "1", *options])
    files = [str(tmp_path / "in"), str(tmp_path / "out")]
    done = run.invoke(app, ["translate", str(models / "export"), "--bulk", *files, "--workers", "1", *options])
    assert (plain.exit_code, done.exit_code, done.stdout) == (0, 0, ""), done.output
    assert (tmp_path / "out").read_bytes() == plain.stdout_bytes
    count = len(ODD) + (end == b"\n\n")
    assert f"{count} lines (" in done.stderr
    assert "1 with invalid UTF-8 replaced" in done.stderr
    assert "sentences per second" in done.stderr
    assert "Next: " in done.stderr


def test_a_file_without_lines_becomes_one(models, tmp_path):
    (tmp_path / "in").touch()
    assert translate_file(models / "export", tmp_path / "in", tmp_path / "out") == BulkSummary(0)
    assert (tmp_path / "out").read_bytes() == b""
    assert not (tmp_path / "out.parts").exists()


@pytest.mark.parametrize("pack", ["gz", "zst"])
def test_packed_files_are_unpacked_on_the_way(models, text, tmp_path, small, pack):
    packed = tmp_path / f"packed.{pack}"
    if pack == "zst":
        data = pytest.importorskip("zstandard").compress(text.read_bytes())
    else:
        data = gzip.compress(text.read_bytes())
    packed.write_bytes(data)
    for file, out in ((text, "one"), (packed, "two")):
        translate_file(models / "export", file, tmp_path / out, beam=1, launcher=LocalLauncher(1))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    packed.write_bytes(data[:-20])
    with pytest.raises(DataError, match="cannot be read to its end"):
        translate_file(models / "export", packed, tmp_path / "three", launcher=LocalLauncher(1))
    assert not (tmp_path / "three.parts").exists()


def test_a_model_directory_works_too_and_workers_change_nothing(models, text, tmp_path, small):
    for model, options in (("run", {"as_json": True}), ("export", {"as_json": True})):
        for workers in (1, 2):
            translate_file(
                models / model, text, tmp_path / f"{model}{workers}", launcher=LocalLauncher(workers), **options
            )
        one, two = ((tmp_path / f"{model}{workers}").read_bytes() for workers in (1, 2))
        assert one == two
        assert len([json.loads(line) for line in one.decode().split("\n")[:-1]]) == 300


def test_an_export_is_translated_with_without_torch(models, text, tmp_path):
    code = f"""
import sys
sys.modules["torch"] = None
from heedful.translation.bulk import translate_file
from heedful.corpus.launchers import LocalLauncher
launcher = LocalLauncher(1)
print(translate_file({str(models / "export")!r}, {str(text)!r}, {str(tmp_path / "out")!r}, launcher=launcher).lines)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "300\n"), done.stderr


# ------------------------------------------------------------------------------------- what is done again, and what not


def test_the_packages_of_every_engine_are_known():
    assert ENGINE_PACKAGES.keys() == ENGINES.keys()


class Stopped(Exception):
    """As good as a kill, but for what clears up."""


def interrupted(models, text, out, after=3, **options) -> dict[str, int]:
    """Stop after some pieces; which there are, and when each was made."""

    def stop(step):
        if step.stage == "translate" and step.done >= after:
            raise Stopped

    with pytest.raises(Stopped):
        translate_file(models / "export", text, out, launcher=LocalLauncher(1), progress=stop, **options)
    return standing(out)


def standing(out: Path) -> dict[str, int]:
    parts = out.with_name(out.name + ".parts")
    return {path.parent.name: path.stat().st_mtime_ns for path in parts.glob("[0-9]*/shard.json")}


def test_repeating_goes_on_where_it_stopped(models, text, tmp_path, small):
    out = tmp_path / "out"
    assert sorted(interrupted(models, text, out)) == ["00000", "00001", "00002"]
    before = interrupted(models, text, out, after=5)
    assert not out.exists()
    assert before.items() <= interrupted(models, text, out, after=7).items()
    found = translate_file(models / "export", text, out, launcher=LocalLauncher(2))
    assert 0 < found.new_lines < found.lines == 300
    translate_file(models / "export", text, tmp_path / "whole", launcher=LocalLauncher(1))
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


CHANGES = {
    "the input": lambda models, text: text.write_bytes(text.read_bytes().replace(b"man", b"dog")),
    "the model": lambda models, text: models / "another",
    "an option": lambda models, text: {"beam": 1},
    "the form": lambda models, text: {"as_json": True},
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed_is_begun_anew(models, text, tmp_path, small, what):
    out = tmp_path / "out"
    before = interrupted(models, text, out)
    changed = CHANGES[what](models, text)
    model = changed if isinstance(changed, Path) else models / "export"
    options = changed if isinstance(changed, dict) else {}
    assert translate_file(model, text, out, launcher=LocalLauncher(1), **options).new_lines == 300
    translate_file(model, text, tmp_path / "fresh", launcher=LocalLauncher(1), **options)
    assert out.read_bytes() == (tmp_path / "fresh").read_bytes()
    assert before


def test_a_model_that_is_exchanged_under_the_same_name_begins_anew(models, text, tmp_path, small):
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.copytree(models / "export", model)
    with pytest.raises(Stopped):
        translate_file(model, text, out, launcher=LocalLauncher(1), progress=lambda step: stop_at(step, 3))
    shutil.rmtree(model)
    shutil.copytree(models / "another", model)
    assert translate_file(model, text, out, launcher=LocalLauncher(1)).new_lines == 300


def stop_at(step, done: int) -> None:
    if step.done == done:
        raise Stopped


def test_an_input_or_a_model_that_changes_meanwhile_is_noticed(models, text, tmp_path, small):
    def touch(step):
        if step.done == 3:
            os.utime(text, ns=(0, 10**18 + step.done))

    with pytest.raises(DataError, match="changed while it was translated; repeat the command"):
        translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(1), progress=touch)
    assert not (tmp_path / "out").exists()
    assert translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(1)).lines == 300
    with pytest.raises(HeedfulError, match="is not the model that the command started with"):
        bulk.WorkerModel().open(str(models / "export"), "of another")


def test_pieces_that_change_while_they_are_joined_are_noticed(models, text, tmp_path, small, monkeypatch):
    monkeypatch.setattr(shutil, "copyfileobj", lambda *_arguments: None)
    with pytest.raises(HeedfulError, match=r"the pieces in .*out\.parts changed while they were joined"):
        translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(1))
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()


def test_two_at_a_time_do_not_meet(models, text, tmp_path, small):
    tries = []

    def again(step):
        if step.stage == "translate" and step.done in (0, 2):
            with pytest.raises(HeedfulError, match=r"another heedful translate --bulk is running in .*out\.parts"):
                translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(1))
            tries.append(step.done)

    assert (
        translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(1), progress=again).new_lines
        == 300
    )
    assert tries == [0, 2]


def test_killed_after_all_was_in_place_it_only_clears_up(models, text, tmp_path, small, monkeypatch):
    out = tmp_path / "out"

    def die(parts):
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(bulk, "remove_pieces", die)
        with pytest.raises(Stopped):
            translate_file(models / "export", text, out, launcher=LocalLauncher(1))
    whole = out.read_bytes()
    assert standing(out)
    with pytest.raises(
        ConfigError, match=r"out exists already; --bulk never overwrites"
    ):  # not what was asked for then
        translate_file(models / "export", text, out, beam=1, launcher=LocalLauncher(1))
    found = translate_file(models / "export", text, out, launcher=LocalLauncher(1))
    assert (found.lines, found.new_lines) == (300, 0)
    assert out.read_bytes() == whole
    assert not (tmp_path / "out.parts").exists()


@posix
@pytest.mark.slow
@pytest.mark.parametrize(("workers", "most"), [(1, 6), (2, 3)])
def test_killed_at_random_moments_and_repeated_it_gives_the_same_bytes(models, text, tmp_path, small, workers, most):
    translate_file(models / "export", text, tmp_path / "whole", beam=4, launcher=LocalLauncher(1))
    out, draw, kills = tmp_path / "out", random.Random(workers), 0
    arguments = (models / "export", "--bulk", text, out, "--beam", 4, f"--workers={workers}")
    while True:
        before = standing(out)
        running = command(*arguments, stderr=subprocess.PIPE)
        while kills < most and standing(out).keys() <= before.keys() and running.poll() is None:
            time.sleep(0.002)
        if kills < most:
            time.sleep(draw.uniform(0, 0.05))
            running.send_signal(signal.SIGKILL)
        _, said = running.communicate(timeout=PATIENCE)
        if out.exists():
            break
        assert running.returncode == -signal.SIGKILL, said
        kills += 1
        after = standing(out)
        assert before.items() <= after.items()  # what was finished was left alone
        assert all(read_record(path) for path in out.with_name("out.parts").glob("[0-9]*"))
    assert kills >= 2
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    if running.returncode == 0:
        assert b"already done" in said


@posix
def test_a_worker_that_is_killed_costs_its_piece_a_new_start(models, text, tmp_path, small):
    translate_file(models / "export", text, tmp_path / "whole", launcher=LocalLauncher(1))
    killed = []

    def kill(step):
        if step.stage == "translate" and step.done == 2 and not killed:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
            if not children.exists():
                pytest.skip("workers are found through Linux's /proc")
            for child in children.read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)
                    killed.append(child)
                    break

    translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(2), progress=kill)
    assert killed
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.slow
@ray_runs_here
def test_a_cluster_gives_the_same_bytes(models, text, tmp_path, small):
    translate_file(models / "export", text, tmp_path / "whole", launcher=LocalLauncher(1))
    with raycluster.Cluster(2) as cluster:
        on = ("--cluster", cluster.address)
        running = command(
            models / "export", "--bulk", text, tmp_path / "out", *on, env=cluster.environment, stderr=subprocess.PIPE
        )
        _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said
    assert b"300 lines" in said
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


# ---------------------------------------------------------------------------------------------------------- misuse


MISUSE = {
    "no input": (["gone", "out"], "there is no file .*gone; --bulk reads a file", ConfigError),
    "a folder": (["folder", "out"], "folder is a directory, but --bulk translates one file", ConfigError),
    "a folder to write": (["in", "folder"], "folder is a directory: pass the name of the file", ConfigError),
    "no folder to write to": (["in", "gone/out"], "there is no directory .*gone for out; create it first", ConfigError),
    "onto itself": (["in", "folder/../in"], "is both input and output", ConfigError),
    "onto itself by a link": (["in", "link"], "is both input and output", ConfigError),
    "over a file": (["in", "there"], "there exists already; --bulk never overwrites a file", ConfigError),
    "over another's folder": (["in", "taken"], r"taken\.parts exists, but is needed for finished pieces", ConfigError),
    "UTF-16": (["wide", "out"], "wide is UTF-16; convert it with: iconv", DataError),
    "not packed": (["in.gz", "out"], r"in\.gz cannot be read to its end", DataError),
    "a beam of 0": (["in", "out", "--beam", "0"], "beam and n-best size must be at least 1", HeedfulError),
    "no number": (
        ["in", "out", "--length-penalty", "nan"],
        "length penalty must be between 0 and 8, not nan",
        HeedfulError,
    ),
    "no such tag": (["in", "out", "--tag", "formal"], "formal", HeedfulError),
    "workers and a cluster": (
        ["in", "out", "--workers", "2", "--cluster", "ray"],
        "only one of the two options",
        HeedfulError,
    ),
    "no workers": (["in", "out", "--workers", "0"], "--workers must be at least 1", HeedfulError),
    "others": (["in", "out", "--ensemble", "other"], "--ensemble cannot be combined with --bulk", ConfigError),
    "tmx": (["in", "out", "--tmx", "in", "out"], "--tmx cannot be combined with --bulk", ConfigError),
    "n best": (["in", "out", "--nbest", "2"], "--nbest cannot be combined with --bulk", ConfigError),
    "links": (["in", "out", "--alignment", "best"], "--alignment cannot be combined with --bulk", ConfigError),
    "draws": (
        ["in", "out", "--sample"],
        "--sample cannot be combined with --bulk: a resumed run must give",
        ConfigError,
    ),
    "a device": (["in", "out", "--device", "cpu"], "--device cannot be combined with --bulk", ConfigError),
    "threads": (
        ["in", "out", "--threads", "2"],
        "--threads cannot be combined with --bulk: .* use --workers N",
        ConfigError,
    ),
    "a file": (["in", "out", "in"], "FILE cannot be combined with --bulk", ConfigError),
}


@pytest.mark.parametrize("what", MISUSE)
def test_misuse_is_explained_and_leaves_nothing(models, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    for name, content in (("in", b"a\n"), ("there", b""), ("wide", "a\n".encode("utf-16")), ("in.gz", b"plain text")):
        (tmp_path / name).write_bytes(content)
    for name in ("folder", "taken.parts"):
        (tmp_path / name).mkdir()
    os.link(tmp_path / "in", tmp_path / "link")
    before = sorted(tmp_path.rglob("*"))
    (source, out, *others), text, kind = MISUSE[what]
    done = CliRunner().invoke(app, ["translate", str(models / "export"), "--bulk", source, out, *others])
    assert isinstance(done.exception, kind)
    with pytest.raises(kind, match=text):
        raise done.exception
    assert sorted(tmp_path.rglob("*")) == before


def test_workers_and_clusters_are_for_bulk_alone(models):
    for options in (["--workers", "2"], ["--cluster", "ray"]):
        done = CliRunner().invoke(app, ["translate", str(models / "export"), *options])
        assert isinstance(done.exception, ConfigError)
        assert "need --bulk IN OUT" in str(done.exception)


def test_no_model_and_no_cluster_leave_nothing(models, text, tmp_path):
    with pytest.raises(HeedfulError, match="there is no model in"):
        translate_file(tmp_path / "gone", text, tmp_path / "out")
    with pytest.raises(HeedfulError):
        translate_file(models / "export", text, tmp_path / "out", launcher=RayLauncher("127.0.0.1:9"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en"]


def test_a_full_disk_is_told_and_the_pieces_are_kept(models, text, tmp_path, small, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(bulk, "sync_path", full)
        with pytest.raises(HeedfulError, match=r"No space left .*out was joined.*finished pieces are kept"):
            translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(1))
    assert standing(tmp_path / "out")
    assert translate_file(models / "export", text, tmp_path / "out", launcher=LocalLauncher(1)).new_lines == 0
