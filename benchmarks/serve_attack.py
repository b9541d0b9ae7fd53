"""Can the server be brought down, or made to work without end, by what it is sent?

`heedful serve` with a CTranslate2 export, and
    schema    schemathesis over the OpenAPI: examples, coverage, fuzzing and stateful phases, right and wrong data
    bodies    200,000 bodies that Hypothesis makes up: JSON, forms, broken and mutated ones, for every API
    slow      200 connections that send their heads, or their bodies, letter by letter
    large     a gigabyte announced, 64 MB sent without saying so, nesting of 100,000, numbers of 100,000 digits
    unicode   lone surrogates, and characters that stand for many (U+FDFA): what is let in stays below its bound
    keys      how long a wrong key takes: nearly right, wholly wrong, none
    models    directories with flipped, cut, lengthened and swapped files, with and without matching hashes

Claims: no status of 500 or above but 503 and 504, the engine never dies over a text, the front answers throughout; no
request that was let in takes longer than its bound; wrong keys take equally long; hostile models are refused by the
engine's process, or served, and harm nothing else.

    python benchmarks/serve_attack.py --model EXPORT [--brief EXPORT] [--bodies N] [--quick]

`--brief` is an export whose generation_config.json limits answers to a few tokens, for the bodies: letters drawn from
all of Unicode make a model ramble to its limit, and it is the requests that are tried there, not the decoding.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from heedful.bundle import EXPORT_FILE, INNER_FOLDER, manifest_entry
from heedful.data.store import MANIFEST
from heedful.errors import HeedfulError
from heedful.serve.guard import new_key, owner, read_keys
from heedful.serve.supervisor import Engine
from report import header, verdict
from serving import children, metrics, served, told

FREE = ("--rate", "1e9", "--burst", "1e9")
PATHS = ("/v1/translate", "/translate", "/v2/translate", "/language/translate/v2", "/detect", "/v1/document")
FINE = {503, 504}  # of all from 500: busy, or out of time
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


class Line:
    """A kept connection, made again where it was closed."""

    def __init__(self, port: int) -> None:
        self.port, self.connection = port, http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, method: str, path: str, body: bytes, kind: str = JSON, **headers: str) -> tuple[int, bytes, float]:
        """Status, body and seconds; 0 where the connection was lost twice."""
        begin = time.perf_counter()
        for _ in range(2):
            try:
                self.connection.request(method, path, body, {"Content-Type": kind, **headers})
                found = self.connection.getresponse()
                return found.status, found.read(), time.perf_counter() - begin
            except (OSError, http.client.HTTPException):
                self.connection.close()
        return 0, b"", time.perf_counter() - begin


# ------------------------------------------------------------------------------------------------------- schema


def schema(port: int, examples: int) -> tuple[bool, str]:
    """Whether schemathesis is content, and its last words."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{port}/openapi.json"]
    command += ["--phases", "examples,coverage,fuzzing,stateful", "--mode", "all", "--max-examples", str(examples)]
    command += ["--checks", "not_a_server_error,response_schema_conformance,content_type_conformance"]
    command += ["--exclude-path", "/inspect", "--request-timeout", "60", "--no-color", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode == 0, "\n".join(lines[-12:] if done.returncode == 0 else lines[-60:])


# ------------------------------------------------------------------------------------------------------- bodies


NAMES = st.sampled_from(
    ["texts", "q", "text", "beam", "alternatives", "alignment", "tokens", "prefix", "tag", "timeout", "length_penalty",
     "source", "target", "source_lang", "target_lang", "format", "api_key", "formality", "glossary_id", "nonsense"]
)  # fmt: skip
ODD = st.sampled_from(
    ["\ufdfa", "\u200b", "\x00", "\u202e", "\ud7ff", "\ufffd", "\U0010ffff", "\n", "\r\n", " ", "\u2028"]
)
WORDS = st.one_of(st.text(max_size=40), st.lists(ODD, max_size=12).map("".join), st.sampled_from(["a dog", "de", "en"]))
VALUES = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["best", "html", "auto"])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
TREES = st.one_of(
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.fixed_dictionaries({"texts": WORDS}, optional={"beam": st.integers(-1, 20), "timeout": st.floats()}),
    st.fixed_dictionaries({"q": WORDS, "target": st.just("de")}, optional={"source": WORDS, "format": WORDS}),
    st.fixed_dictionaries({"text": st.lists(WORDS, max_size=3), "target_lang": st.just("DE")}),
    VALUES,
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """Where to, which kind, and what."""
    path, tree = draw(st.sampled_from(PATHS)), draw(TREES)
    kind = draw(st.sampled_from([JSON, JSON, JSON, FORM, "text/plain", "multipart/form-data", ""]))
    if kind == FORM and isinstance(tree, dict):
        return path, kind, urlencode({name: str(value) for name, value in tree.items()}, errors="replace").encode()
    data = json.dumps(tree, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for place, value in draw(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=2)):
        at = place % (len(data) + 1)
        data = data[:at] + bytes([value]) + data[at + draw(st.integers(0, 2)) :]
    return path, kind, data


def made_up(port: int, count: int) -> tuple[Counter[int], list[float]]:
    """Statuses and seconds of bodies that Hypothesis makes up."""
    line, statuses, seconds = Line(port), Counter[int](), list[float]()

    @given(bodies())
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    def one(what: tuple[str, str, bytes]) -> None:
        path, kind, data = what
        status, _, took = line.send("POST", path, data, kind)
        statuses[status] += 1
        seconds.append(took)
        if status == 0 or (status >= 500 and status not in FINE):
            print(f"!! {status} for {path} {kind} {data!r}", flush=True)

    one()
    return statuses, seconds


# --------------------------------------------------------------------------------------------------- slow, large


async def slow(port: int, count: int) -> tuple[int, list[float]]:
    """How many of the slow are still connected after 15 seconds, and what others wait meanwhile."""
    waits, still = list[float](), 0

    async def trickle(number: int) -> None:
        nonlocal still
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"
        writer.write((head + ("X-Slow: " if number % 2 else "Content-Length: 500\r\n\r\n")).encode())
        end, there = time.perf_counter() + 15, True
        while there and time.perf_counter() < end:
            writer.write(b"x")
            try:
                there = bool(await asyncio.wait_for(reader.read(100), 1))  # a 408 is read; then comes the end
            except TimeoutError:
                continue
            except OSError:
                there = False
        still += there
        writer.close()

    async def ask() -> None:
        line = Line(port)
        for _ in range(60):
            status, _, took = await asyncio.to_thread(line.send, "POST", "/v1/translate", b'{"texts": "a dog"}')
            assert status == 200, status
            waits.append(took)
            await asyncio.sleep(0.2)

    await asyncio.gather(ask(), *(trickle(number) for number in range(count)))
    return still, waits


def large(port: int) -> dict[str, int | str]:
    """Statuses of what is much too much; a server may also hang up on who sends on and on."""
    line, digits = Line(port), b"9" * 100_000
    found: dict[str, int | str] = {
        "nesting of 100,000": line.send("POST", "/v1/translate", b'{"texts":' + b"[" * 100_000)[0],
        "a number of 100,000 digits": line.send("POST", "/v1/translate", b'{"texts":"a","beam":' + digits + b"}")[0],
        "100,000 fields": line.send("POST", "/translate", b"&".join([b"q=a"] * 100_000), FORM)[0],
        "half a character": line.send("POST", "/v1/translate", b'{"texts": "\\ud800"}')[0],
    }  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n{")
        found["a gigabyte announced"] = status_of(raw)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(64):
                raw.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
            found["64 MB without saying so"] = status_of(raw)
        except OSError:
            found["64 MB without saying so"] = "hung up"
    return found


def status_of(raw: socket.socket) -> int:
    """Of the next response."""
    said = re.match(rb"HTTP/1.1 (\d+)", raw.recv(4096))
    return int(said[1]) if said else 0


def amplified(port: int, count: int) -> tuple[int, float, float]:
    """Of texts made of what stands for much: how many were let in, and how long the longest took; and the bound.

    The bound: half as long again as plain nonsense takes that is as long as may be at the usual beam, and a second.
    """
    line, draw = Line(port), random.Random(4)
    fair = 0.0
    for size in range(1000, 12_000, 1000):
        for breaks in (0.0, 0.02):
            text = "".join("\n" if draw.random() < breaks else draw.choice("abcdefgh ") for _ in range(size))
            status, _, took = line.send("POST", "/v1/translate", json.dumps({"texts": text, "beam": 5}).encode())
            fair = max(fair, took if status == 200 else 0.0)
    letters = [
        "\ufdfa",
        "\u33a2",
        "\u3300",
        "\ufb03",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u0958",
        "\n",
        "a\n",
        "\U0010fffd",
    ]
    slowest, inside = 0.0, 0
    for _ in range(count):
        text = "".join(draw.choice(letters) for _ in range(1)) * draw.choice([1, 30, 120, 400, 1200, 4000])
        tree = {
            "texts": [text] * draw.choice([1, 2, 8]),
            "beam": draw.choice([1, 5, 16]),
            "alternatives": draw.choice([0, 8]),
        }
        status, _, took = line.send("POST", "/v1/translate", json.dumps(tree).encode())
        assert status in (200, 413, 422, 503), status
        if status == 200:
            inside += 1
            slowest = max(slowest, took)
    return inside, slowest, 1.5 * fair + 1


# --------------------------------------------------------------------------------------------------- keys, models


def keys(model: Path, count: int) -> tuple[float, float, float]:
    """Of three kinds of wrong keys: the largest difference between their medians, and their median, in seconds.

    And the same difference, as a share, of the function that compares, without HTTP around it.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "keys"
        right = new_key(file, "ann")
        for number in range(50):
            new_key(file, f"other{number}")
        with served(model, "--keys", str(file), threads=2) as (port, _):
            line, body = Line(port), b'{"texts": "a"}'
            assert line.send("POST", "/v1/translate", body, Authorization=f"Bearer {right}")[0] == 200
            stored = read_keys(file)
            kinds = {"nearly": right[:-1] + ("A" if right[-1] != "A" else "B"), "wholly": "x" * len(right), "empty": ""}
            seconds: dict[str, list[float]] = {name: [] for name in kinds}
            for _ in range(count):
                for name, key in kinds.items():
                    status, _, took = line.send("POST", "/v1/translate", body, Authorization=f"Bearer {key}")
                    assert status == 401, status
                    seconds[name].append(took)
    medians = [statistics.median(some) for some in seconds.values()]
    compared: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(5 * count):
        for name, key in kinds.items():
            begin = time.perf_counter()
            owner(stored, key)
            compared[name].append(time.perf_counter() - begin)
    alone = [statistics.median(some) for name, some in compared.items() if name != "empty"]  # nothing is hashed sooner
    return max(medians) - min(medians), statistics.median(medians), max(alone) / min(alone) - 1


@contextmanager
def damaged(model: Path, seed: int) -> Iterator[Path]:
    """A copy of a model with something wrong in it; every second one says that it is right."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        shutil.copytree(model, folder)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        file = draw.choice([one for one in files if one.name not in (MANIFEST, EXPORT_FILE)])
        data = bytearray(file.read_bytes())
        kind = draw.choice(["flip", "cut", "lengthen", "zero", "link", "swap", "huge"])
        if kind == "flip":
            for _ in range(draw.choice([1, 50])):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        elif kind == "cut":
            del data[draw.randrange(len(data)) :]
        elif kind == "lengthen":
            data += bytes(draw.randrange(1, 100_000))
        elif kind == "zero":
            at = draw.randrange(len(data))
            data[at : at + 1000] = bytes(len(data[at : at + 1000]))
        elif kind == "swap":
            data = bytearray(draw.choice(files).read_bytes())
        elif kind == "huge":
            at = draw.randrange(min(200, len(data)))
            data[at : at + 8] = b"\xff" * len(data[at : at + 8])
        if kind == "link":
            file.unlink()
            file.symlink_to("/etc/hostname")
        else:
            file.write_bytes(data)
            if seed % 2:
                agree(folder)
        yield folder


def agree(folder: Path) -> None:
    """Write down what is there, as if it were right."""
    inner = folder / INNER_FOLDER
    about = json.loads((inner / EXPORT_FILE).read_text())
    about["files"] = {name: manifest_entry(folder / name) for name in about["files"]}
    (inner / EXPORT_FILE).write_text(json.dumps(about))
    manifest = json.loads((inner / MANIFEST).read_text())
    manifest["files"] = {name: manifest_entry(inner / name) for name in manifest["files"]}
    (inner / MANIFEST).write_text(json.dumps(manifest))


async def opened(folder: Path) -> str:
    """What becomes of a model: served, or refused, and how."""
    engine = Engine(folder, threads=1)
    try:
        await engine.start()
    except HeedfulError as error:
        return "crashed its process" if "its process ended" in str(error) else "refused"
    await engine.close()
    return "served"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--brief", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bodies", type=int, help="so many, instead of 200,000")
    given_ = parser.parse_args()
    header(__file__)
    examples, made, slowly, wide, tries, models = (
        (5, 2000, 40, 20, 100, 4) if given_.quick else (200, 200_000, 200, 300, 2000, 200)
    )
    made = made if given_.bodies is None else given_.bodies
    with served(given_.brief or given_.model, *FREE, threads=2) as (port, _):
        pid = told(port)["pid"]
        statuses, seconds = made_up(port, made)
        print(
            f"{made:,} made-up bodies: {dict(sorted(statuses.items()))}; slowest {max(seconds, default=0.0):.2f} s",
            flush=True,
        )
        unharmed = told(port)["pid"] == pid
    with served(given_.model, *FREE, threads=2) as (port, _):
        pid = told(port)["pid"]
        content, words = schema(port, examples)
        print(f"schemathesis ({examples} examples each):\n{words}", flush=True)
        still, waits = asyncio.run(slow(port, slowly))
        print(f"{slowly} slow ones: {still} still there after 15 s; others waited {1000 * max(waits):.0f} ms at most",
              flush=True)  # fmt: skip
        sizes = large(port)
        print(f"too much: {sizes}", flush=True)
        inside, slowest, bound = amplified(port, wide)
        print(
            f"{wide} texts of much in little: {inside} let in, at most {slowest:.2f} s (bound {bound:.2f})", flush=True
        )
        alive = unharmed and told(port)["pid"] == pid and metrics(port)["heedful_engine_restarts_total"] == 0
    apart, usual, compared = keys(given_.model, tries)
    print(f"wrong keys: {1e6 * usual:.0f} us over HTTP, kinds differ by {1e6 * apart:.1f} us ({3 * tries:,} tries); "
          f"the comparison alone by {100 * compared:.1f} %", flush=True)  # fmt: skip
    fates, longest, left = Counter[str](), 0.0, 0
    for seed in range(models):
        with damaged(given_.model, seed) as folder:
            begin = time.perf_counter()
            fates[asyncio.run(opened(folder))] += 1
            longest = max(longest, time.perf_counter() - begin)
            left += len(children(os.getpid()))
    print(f"{models} hostile models: {dict(fates)}; {longest:.1f} s at most", flush=True)
    bad = sum(many for status, many in statuses.items() if status == 0 or (status >= 500 and status not in FINE))
    code = verdict(
        [
            ("schemathesis is content", float(content), 1),
            ("made-up bodies with a status of 500, or none (minus)", -bad, 0),
            ("the engine lived through it", float(alive), 1),
            ("slow ones still there (minus)", -still, 0),
            ("1 s - the longest that others waited beside slow ones", 1 - max(waits), 0),
            ("all that is too much gets 413 or 422", float(set(sizes.values()) <= {413, 422, "hung up"}), 1),
            ("seconds below the bound, of what was let in", bound - slowest, 0),
            ("0.05 - difference between wrong keys, as a share", 0.05 - apart / usual, 0),
            ("0.05 - difference between the comparisons alone", 0.05 - compared, 0),
            ("10 s - the longest that a hostile model took", 10.0 - longest, 0),
            ("processes that hostile models left behind (minus)", -left, 0),
        ]
    )
    print(f"{made:,} bodies, {models} models: {bad} statuses of 500, {'no' if alive else 'SOME'} death of the engine")
    return code


if __name__ == "__main__":
    sys.exit(main())
