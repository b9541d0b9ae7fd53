"""Every shard once, whatever is killed and when."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from heedful.corpus.launchers import LAUNCHERS, LocalLauncher, RayLauncher, _run_on_node, make_launcher
from heedful.corpus.runner import run_stage
from heedful.corpus.shards import CodeVersions, Shard, ShardTask, hash_code, read_record
from heedful.errors import HeedfulError, MissingExtra
from support import ray_cluster as raycluster
from support import shard_stages
from support.timeouts import PATIENCE

DRIVER = Path(shard_stages.__file__)
VERSIONS = shard_stages.VERSIONS
run = partial(run_stage, versions=VERSIONS)
posix = pytest.mark.skipif(os.name != "posix", reason="sends signals to process groups")


@pytest.fixture
def journal(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "journal"
    folder.mkdir()
    monkeypatch.setenv("SHARD_JOURNAL", str(folder))
    return folder


@pytest.fixture
def inputs(tmp_path, journal) -> Path:
    folder = tmp_path / "inputs"
    folder.mkdir()
    draw = random.Random(0)
    for name in range(8):
        lines = [f"Wort{draw.randrange(50)}  und\tWort{draw.randrange(50)}" for _ in range(40)]
        (folder / f"{name:05}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def executions(journal: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in journal.iterdir() if not path.name.startswith("."))


def forget(journal: Path) -> None:
    for path in journal.iterdir():
        path.unlink()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones and rows too."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_over(folder: Path) -> list[Path]:
    return list(folder.glob(".tmp-*"))


def made(
    inputs: Path, outputs: Path, settings: dict | None = None, stage=shard_stages.tidy, **options
) -> dict[str, bytes]:
    rows = run(stage, shard_stages.shards_of(inputs, outputs), settings or {}, **options)
    assert [row.name for row in rows] == [path.stem for path in sorted(inputs.iterdir())]
    assert left_over(outputs) == []
    return tree(outputs)


# What a shard is


def test_a_shard_is_its_files_and_a_row_that_tells_about_them(inputs, tmp_path):
    told = []
    rows = run(shard_stages.tidy, shard_stages.shards_of(inputs, tmp_path / "out"), {}, on_done=told.append)
    assert rows == told
    assert rows[0].counts == {"lines": 40}
    assert read_record(tmp_path / "out" / "00000") == rows[0]
    assert set(rows[0].files) == {"text/lines", "longest"}
    lines = (tmp_path / "out" / "00000" / "text" / "lines").read_text().splitlines()
    assert lines == sorted(lines)
    assert rows[0].files["text/lines"] == sum(len(line) + 1 for line in lines)
    assert len({row.output for row in rows}) == len(rows)
    assert len({row.code for row in rows}) == 1


def test_nothing_in_a_shard_depends_on_where_it_stands_or_when_it_was_made(inputs, tmp_path):
    one = made(inputs, tmp_path / "one")
    time.sleep(0.01)
    shutil.copytree(inputs, tmp_path / "elsewhere")  # keeps the times of change
    assert made(tmp_path / "elsewhere", tmp_path / "two" / "deeper") == one


@pytest.mark.parametrize("workers", [2, 4])
def test_any_number_of_workers_makes_the_same_bytes(inputs, tmp_path, workers):
    serial = made(inputs, tmp_path / "serial")
    assert made(inputs, tmp_path / "many", launcher=LocalLauncher(workers)) == serial


def test_relative_paths_mean_the_callers_directory(inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = run(shard_stages.surroundings, shard_stages.shards_of(Path("inputs"), Path("out")), {})
    assert all(row.counts["absolute"] for row in rows)  # a worker's directory may be another
    assert read_record(tmp_path / "out" / "00000") == rows[0]


def test_a_worker_has_one_thread_and_the_environment_is_given_back(inputs, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    rows = run(
        shard_stages.surroundings, shard_stages.shards_of(inputs, tmp_path / "out"), {}, launcher=LocalLauncher(2)
    )
    assert {(row.counts["polars threads"], row.counts["openmp threads"]) for row in rows} == {(1, 1)}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "POLARS_MAX_THREADS" not in os.environ


# What is done again, and what is not


def test_repeating_a_finished_run_does_nothing(inputs, tmp_path, journal):
    first = made(inputs, tmp_path / "out")
    told = []
    assert (
        made(inputs, tmp_path / "out", launcher=RayLauncher("nowhere:1"), on_done=told.append) == first
    )  # no launcher
    assert len(executions(journal)) == len(told) == 8


def test_repeating_an_interrupted_run_goes_on_where_it_stopped(inputs, tmp_path, journal):
    def stop(row):
        if row.name == "00002":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(inputs, tmp_path / "out", on_done=stop)
    assert executions(journal) == ["00000", "00001", "00002"]
    made(inputs, tmp_path / "out")
    assert executions(journal) == [f"{name:05}" for name in range(8)]


def touch(inputs: Path, outputs: Path) -> None:
    path = inputs / "00003.txt"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))


def grow(inputs: Path, outputs: Path) -> None:
    with (inputs / "00003.txt").open("a") as file:
        file.write("\nmore")


def edit(path: str, change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def spoil(inputs: Path, outputs: Path) -> None:
        target = outputs / "00003" / path
        target.write_bytes(change(target.read_bytes()))

    return spoil


def rewrite(**fields) -> Callable[[Path, Path], None]:
    return edit("shard.json", lambda text: json.dumps(json.loads(text) | fields).encode())


SPOILED = {
    "an input was touched": touch,
    "an input has grown": grow,
    "the row is missing": lambda inputs, outputs: (outputs / "00003" / "shard.json").unlink(),
    "the row is cut off": edit("shard.json", lambda text: text[:-9]),
    "the row is empty": edit("shard.json", lambda text: b""),
    "the row is no text": edit("shard.json", lambda text: b"\xff\xfe"),
    "the row is a list": edit("shard.json", lambda text: b"[]"),
    "the row is another shard's": rewrite(name="00004"),
    "the row has one field too many": rewrite(time=1),
    "the row lists no files": rewrite(files=None),
    "a file is cut off": edit("text/lines", lambda text: text[:-1]),
    "a file is missing": lambda inputs, outputs: (outputs / "00003" / "longest").unlink(),
    "the folder is missing": lambda inputs, outputs: shutil.rmtree(outputs / "00003"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_what_no_longer_holds_is_made_again_and_nothing_else(inputs, tmp_path, journal, how):
    before = made(inputs, tmp_path / "out")
    SPOILED[how](inputs, tmp_path / "out")
    after = made(inputs, tmp_path / "out")
    assert executions(journal) == sorted([*(f"{name:05}" for name in range(8)), "00003"])
    assert (after == before) == ("input" not in how)


def test_other_settings_make_everything_again(inputs, tmp_path, journal):
    before = made(inputs, tmp_path / "out")
    after = made(inputs, tmp_path / "out", {"rounds": 2})
    assert len(executions(journal)) == 16
    assert {name for name in before if before[name] != after[name]} == {f"{name:05}/shard.json" for name in range(8)}


@pytest.mark.parametrize("versions", [CodeVersions(2, ("numpy",)), CodeVersions(1, ("numpy", "polars"))])
def test_another_version_of_the_stage_or_of_a_package_makes_everything_again(inputs, tmp_path, journal, versions):
    before = made(inputs, tmp_path / "out")
    after = made(inputs, tmp_path / "out", versions=versions)
    assert len(executions(journal)) == 16
    assert {name for name in before if before[name] != after[name]} == {f"{name:05}/shard.json" for name in range(8)}


def test_a_package_counts_by_its_version(monkeypatch):
    code = hash_code(shard_stages.tidy, {}, VERSIONS)
    monkeypatch.setattr("heedful.corpus.shards.version", lambda package: "0.0")
    assert hash_code(shard_stages.tidy, {}, VERSIONS) != code


def test_a_missing_package_is_not_the_same_as_an_installed_one():
    codes = [hash_code(shard_stages.tidy, {}, CodeVersions(1, (name,))) for name in ("numpy", "not-installed")]
    assert codes[0] != codes[1]


def test_the_second_stage_follows_the_contents_of_the_first_and_not_its_times(inputs, tmp_path, journal):
    def both(settings):
        made(inputs, tmp_path / "one", settings)
        run(shard_stages.tidy, shard_stages.shards_of(tmp_path / "one", tmp_path / "two"), {})

    both({})
    both({"rounds": 2})  # the first stage is made again, with the same result
    assert len(executions(journal)) == 8 + 8 + 8
    grow(inputs, tmp_path)
    both({"rounds": 2})
    assert len(executions(journal)) == 24 + 1 + 1


def test_settings_are_hashed_by_what_they_say():
    def code(**settings):
        return hash_code(shard_stages.tidy, settings, VERSIONS)

    assert code(a=1, b=2) == code(b=2, a=1)
    assert code(a=Path("x")) == code(a="x")
    assert len({code(a=1), code(a=1.5), code(a="1"), code(a=None), code(a=True), code(a=[1]), code(a={"b": 1})}) == 7
    assert code() != hash_code(shard_stages.beaten, {}, VERSIONS)
    with pytest.raises(TypeError, match="is a set"):
        code(a={1})
    with pytest.raises(ValueError, match="JSON"):
        code(a=float("nan"))


def test_left_overs_of_killed_workers_are_removed_before_the_work_begins(inputs, tmp_path):
    left = tmp_path / "out" / ".tmp-00003-0123"
    left.mkdir(parents=True)
    (left / "half").touch()
    rows = run(shard_stages.surroundings, shard_stages.shards_of(inputs, tmp_path / "out"), {})
    assert {row.counts["half-written"] for row in rows} == {1}  # its own


def test_a_shard_appears_all_at_once(inputs, tmp_path):
    stop, seen, partial = threading.Event(), set(), set()

    def look():
        while not stop.is_set():
            for path in [path for path in (tmp_path / "out").glob("*") if not path.name.startswith(".tmp-")]:
                row = read_record(path)
                (seen if row and len(row.files) == len(list(path.iterdir())) - 1 else partial).add(path.name)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        run(shard_stages.many_files, shard_stages.shards_of(inputs, tmp_path / "out"), {})
    finally:
        stop.set()
        watcher.join()
    assert seen
    assert not partial


# What is killed


def test_a_worker_killed_in_the_middle_costs_its_shards_a_new_start(inputs, tmp_path, journal):
    serial = made(inputs, tmp_path / "serial")
    forget(journal)
    found = made(inputs, tmp_path / "out", stage=shard_stages.tidy_after_a_kill, launcher=LocalLauncher(2))
    assert executions(journal).count("00003") == 2
    assert len(executions(journal)) <= 10  # the killed one, and at most the one beside it, once more
    assert {name: text for name, text in found.items() if "json" not in name} == {
        name: text for name, text in serial.items() if "json" not in name
    }


def test_a_shard_that_always_kills_its_worker_is_given_up_by_name(inputs, tmp_path, journal):
    shards = shard_stages.shards_of(inputs, tmp_path / "out")[5:6]
    with pytest.raises(
        HeedfulError, match=r"killed 3 times while processing shard 00005, .* fewer workers \(--workers, now 2\)"
    ):
        run(shard_stages.always_killed, shards, {}, launcher=LocalLauncher(2))
    assert executions(journal) == ["00005"] * 3
    assert left_over(tmp_path / "out") == []


def driver(stage: str, inputs: Path, outputs: Path, *options: str, **popen) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, str(DRIVER), stage, str(inputs), str(outputs), *options], **popen)


def processes_gone(journal: Path, seconds: float = 5) -> bool:
    """Whether everyone who wrote into the journal is dead, soon."""
    waiting = {int(path.name.split("-")[1]) for path in journal.iterdir()}
    end = time.monotonic() + seconds
    while waiting and time.monotonic() < end:
        for process in list(waiting):
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                waiting.discard(process)
        time.sleep(0.01)
    return not waiting


def wait_for_executions(journal: Path, count: int, running: subprocess.Popen) -> None:
    while len(executions(journal)) < count:
        assert running.poll() is None, "ended too early"
        time.sleep(0.01)


@posix
def test_a_driver_killed_at_random_moments_and_repeated_gives_the_serial_result(inputs, tmp_path, journal):
    settings = {"pause": 0.05}
    serial = made(inputs, tmp_path / "serial", settings)
    forget(journal)
    draw = random.Random(1)
    kills = 0
    for _ in range(8):
        before = len(executions(journal))
        running = driver("tidy", inputs, tmp_path / "out", "--workers=2", "--settings", json.dumps(settings))
        while len(executions(journal)) == before and running.poll() is None:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.1))
        running.kill()
        kills += running.wait() == -signal.SIGKILL
        assert all(read_record(path) for path in (tmp_path / "out").iterdir() if not path.name.startswith(".tmp-"))
    assert kills >= 2
    assert processes_gone(journal)
    assert made(inputs, tmp_path / "out", settings) == serial
    assert made(inputs, tmp_path / "out", settings, launcher=LocalLauncher(2)) == serial


@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_control_c_stops_at_once_and_leaves_nothing(inputs, tmp_path, journal, workers):
    options = (f"--workers={workers}", "--settings", '{"pause": 100}')
    running = driver("tidy", inputs, tmp_path / "out", *options, start_new_session=True, stderr=subprocess.PIPE)
    wait_for_executions(journal, workers, running)
    assert left_over(tmp_path / "out")
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to everyone
    _, errors = running.communicate(timeout=10)
    assert running.returncode == -signal.SIGINT
    assert errors.decode().count("Traceback") == 1
    assert processes_gone(journal)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_twin_that_finished_first_is_believed(inputs, tmp_path, journal):
    found = made(inputs, tmp_path / "out", stage=shard_stages.beaten)
    assert len(executions(journal)) == 16
    assert len(found) == 8 * 3


# What goes wrong


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("stage", "kind", "text"),
    [
        ("full_disk", HeedfulError, r"^shard 0000\d: No space left on device \(.*\)\. Free some space and run"),
        ("own_error", MissingExtra, r"^this needs that$"),
        ("foreign_error", KeyError, r"^'what was looked for'\nin shard 0000\d, made by support\.shard_stages\.foreign"),
        ("stubborn_error", HeedfulError, r"(?s)Traceback.*Stubborn: 1 and 2\nin shard 0000\d, made by support\."),
        ("in_the_way", HeedfulError, r"^shard 0000\d: .*(exists|not empty|denied).*Fix the cause"),
    ],
)
def test_errors_keep_their_kind_and_text_and_leave_nothing_half_done(inputs, tmp_path, stage, kind, text, workers):
    with pytest.raises(kind, match=text) as caught:
        made(inputs, tmp_path / "out", stage=getattr(shard_stages, stage), launcher=LocalLauncher(workers))
    assert type(caught.value) is kind
    assert left_over(tmp_path / "out") == []
    assert [path for path in (tmp_path / "out").iterdir() if read_record(path)] == []


def test_a_task_that_fails_clears_up_by_itself(inputs, tmp_path):
    shard, *_ = shard_stages.shards_of(inputs, tmp_path / "out")
    with pytest.raises(MissingExtra):
        ShardTask(shard_stages.own_error, {}, "code", VERSIONS)(shard)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_missing_input_is_named_and_shared_disks_are_mentioned(inputs, tmp_path):
    shards = [Shard("00009", (inputs / "gone.txt",), tmp_path / "out" / "00009")]
    with pytest.raises(HeedfulError, match=r"shard 00009: there is no .*gone\.txt on .*, on a shared disk"):
        run(shard_stages.tidy, shards, {})
    with pytest.raises(HeedfulError, match=r"shard 00009: its input .* is not a finished shard"):
        run(shard_stages.tidy, [replace(shards[0], inputs=(inputs,))], {})


def test_two_shards_may_not_share_a_name_or_an_output(tmp_path):
    one = Shard("1", (), tmp_path / "1")
    for other in (replace(one, name="2"), replace(one, output=tmp_path / "2")):
        with pytest.raises(ValueError, match="same name or the same output"):
            run(shard_stages.tidy, [one, other], {})


# Where it runs


def test_what_the_command_line_means():
    assert make_launcher(None, None) == make_launcher("local", None) == LocalLauncher(1)
    assert make_launcher(None, 3) == make_launcher("local", 3) == LocalLauncher(3)
    assert make_launcher("ray", None) == RayLauncher("auto")
    for address in ("ray://head:10001", "10.0.0.7:6379", "[::1]:6379", "ray://[fe80::1]:10001"):
        assert make_launcher(address, None) == RayLauncher(address)
    assert set(LAUNCHERS) == {"local", "ray"}


@pytest.mark.parametrize(
    ("cluster", "workers", "text"),
    [
        (None, 0, "--workers must be at least 1, not 0"),
        ("ray", 2, "--workers is for this machine, but --cluster ray sends"),
        (
            "spark://head:7077",
            None,
            "--cluster spark://head:7077 is not a cluster address. Use local or ray, host:6379",
        ),
        ("ray://head", None, "is not a cluster address"),
        ("head", None, "is not a cluster address"),
        ("", None, "is not a cluster address"),
    ],
)
def test_misuse_of_the_command_line_is_explained(cluster, workers, text):
    with pytest.raises(HeedfulError) as caught:
        make_launcher(cluster, workers)
    assert text in str(caught.value)


def test_ray_that_is_not_installed_is_asked_for(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"--cluster ray needs ray.*pip install 'heedful\[scale\]'"):
        made(inputs, tmp_path / "out", launcher=RayLauncher())


def asked(environment: dict[str, str | None], inputs: Path, outputs: Path, *options: str, stage: str = "tidy") -> str:
    """What a driver says at the end; each in a process of its own, as Ray reads its environment only once."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, str(DRIVER), stage, str(inputs), str(outputs), *options]
    ended = subprocess.run(
        command, env=clean | environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return ended.stderr if ended.returncode else "done"


ray_runs_here = pytest.mark.skipif(bool(raycluster.why_not()), reason=raycluster.why_not())


@ray_runs_here
def test_a_cluster_that_cannot_be_reached_is_explained(inputs, tmp_path):
    error = asked({"HOME": str(tmp_path)}, inputs, tmp_path / "out", "--cluster", "127.0.0.1:9")
    assert "HeedfulError: --cluster 127.0.0.1:9: cannot connect to a Ray cluster" in error
    assert "RAY_AUTH_MODE=token ray start --head" in error


@ray_runs_here
def test_a_ray_that_was_imported_without_tokens_is_not_used_without_them():
    code = "import ray; from heedful.corpus.launchers import RayLauncher; RayLauncher('127.0.0.1:9')(None, [], print)"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ended = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=False)
    message = "HeedfulError: ray was imported before heedful could enable token authentication. Set the environment"
    assert f"{message} variable RAY_AUTH_MODE=token" in ended.stderr


@ray_runs_here
@pytest.mark.skipif(find_spec("grpc") is not None, reason="Ray's client is installed")
def test_rays_client_that_is_not_installed_is_asked_for(inputs, tmp_path):
    error = asked({}, inputs, tmp_path / "out", "--cluster", "ray://127.0.0.1:9")
    assert "HeedfulError: --cluster ray://127.0.0.1:9 needs Ray's client" in error
    assert "pip install 'ray[client]'" in error


def test_a_node_with_another_version_refuses(inputs, tmp_path):
    shard, *_ = shard_stages.shards_of(inputs, tmp_path / "out")
    code = hash_code(shard_stages.tidy, {}, VERSIONS)
    assert _run_on_node(ShardTask(shard_stages.tidy, {}, code, VERSIONS), shard).name == shard.name
    with pytest.raises(HeedfulError, match="another version of heedful or of numpy than the machine that runs"):
        _run_on_node(ShardTask(shard_stages.tidy, {}, "of another release", VERSIONS), shard)


@pytest.mark.slow
@ray_runs_here
def test_a_cluster_whose_node_is_killed_gives_the_serial_result(inputs, tmp_path, journal):
    for name in range(8, 40):
        shutil.copy2(inputs / f"{name % 8:05}.txt", inputs / f"{name:05}.txt")
    settings = {"pause": 0.2}
    serial = made(inputs, tmp_path / "serial", settings, launcher=LocalLauncher(4))
    forget(journal)
    with raycluster.Cluster(2, SHARD_JOURNAL=str(journal)) as cluster:
        token = {
            name: cluster.environment[name] for name in ("PYTHONPATH", "RAY_AUTH_TOKEN")
        }  # its mode is our default
        on = ("--cluster", cluster.address)
        error = asked({"HOME": str(tmp_path), **token, "RAY_AUTH_TOKEN": ""}, inputs, tmp_path / "out", *on)
        assert "authentication token" in error
        assert "ray get-auth-token --generate" in error
        assert "RAY_AUTH_MODE=disabled" in error

        while not cluster.complete():
            time.sleep(0.05)
        running = driver(
            "tidy", inputs, tmp_path / "out", *on, "--settings", json.dumps(settings), env=os.environ | token
        )
        wait_for_executions(journal, 8, running)
        assert cluster.kill()
        assert running.wait(PATIENCE) == 0
        assert tree(tmp_path / "out") == serial
        assert 40 <= len(executions(journal)) <= 44

        for stage, kind in (("own_error", "MissingExtra: this needs that"), ("foreign_error", "KeyError: 'what was")):
            assert kind in asked(token, inputs, tmp_path / "wrong", *on, stage=stage)


def test_a_cluster_that_fails_is_explained(inputs, tmp_path, monkeypatch):
    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    def fail():
        raise RayError("head node lost")

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    ray = SimpleNamespace(
        exceptions=exceptions,
        remote=lambda _task: SimpleNamespace(options=lambda **_options: None),
        cluster_resources=fail,
    )
    monkeypatch.setattr("heedful.corpus.launchers._connect_ray", lambda _address: nullcontext(ray))
    with pytest.raises(HeedfulError, match=r"the cluster failed \(head node lost\).*finished shards are kept"):
        run(shard_stages.tidy, shard_stages.shards_of(inputs, tmp_path / "out"), {}, launcher=RayLauncher("auto"))


def test_an_old_output_that_cannot_be_removed_is_named(inputs, tmp_path, monkeypatch):
    shards = shard_stages.shards_of(inputs, tmp_path / "out")
    run(shard_stages.tidy, shards, {})

    def fail(_folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", fail)
    with pytest.raises(HeedfulError, match="shard 00000: cannot remove the old"):
        run(shard_stages.tidy, shards, {"other": 1})
    monkeypatch.undo()
