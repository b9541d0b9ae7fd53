"""How much of CTranslate2's speed remains over HTTP?

Alternates between `heedful serve` with a CTranslate2 export, with a client on the same machine, and plain
`translate_batch`, with the same sentences, beam, threads and batch tokens. While plain CTranslate2 runs, the client
runs at the same rate against an HTTP server with a constant response. Plain CTranslate2 gets and returns subwords; the
server also normalizes, tokenizes, detokenizes and computes flags.

Claims: requests of 32 sentences at beam 5, at saturation, reach at least 0.85 of its speed; at low load the median
request of one sentence takes at most 5 ms longer than `translate_batch` of that sentence; the first response arrives
within 3 seconds after the start of `heedful serve`; every response equals `heedful translate`, with alignment and
probabilities.

    python benchmarks/serve_speed.py [--model EXPORT] [--rounds 7] [--seconds 10] [--quick]

Without --model, the bundled sample model is exported and measured.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.engines.ctranslate2 import CTranslate2Engine
from heedful.translation.loading import load
from heedful.translation.translator import BATCH_SENTENCES, BATCH_TOKENS, TranslationOptions
from report import header, verdict
from serving import Client, Reply, closed_loop, export_sample, make_requests, read_sentences, run_server

BEAM, SENTENCES_PER_REQUEST, NUM_CLIENTS, NUM_SINGLE_CLIENTS, THREADS = 5, 32, 10, 256, 2


# ------------------------------------------------------------------------------------------------ the engine alone


def run_engine(model: Path, seconds: float) -> None:
    """Child process: for each line of stdin, translate for `seconds` and print sentences per second.

    A line `one N` translates only sentence N and prints the seconds.
    """
    translator = load(model, threads=THREADS)
    engine, penalty = translator.engine, translator.bundle.generation.length_penalty
    assert isinstance(engine, CTranslate2Engine), f"{model} is not an export to CTranslate2"
    segmented = translator.make_segments(read_sentences(model), TranslationOptions(beam=BEAM), 0)
    rows = engine.spell([segment.source for segments in segmented for segment in segments])
    limit = max(segment.source.max_length for segments in segmented for segment in segments)

    def translate(batch: Sequence[Sequence[str]]) -> None:
        engine.model.translate_batch(
            batch,
            beam_size=BEAM,
            length_penalty=penalty,
            max_decoding_length=limit,
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            return_scores=True,
        )

    translate(rows[:128])
    print("ready", flush=True)
    for line in sys.stdin:
        if line.startswith("one"):
            begin = time.perf_counter()
            translate([rows[int(line.split()[1])]])
            print(time.perf_counter() - begin, flush=True)
            continue
        begin, num_translated = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            batch = [rows[(num_translated + offset) % len(rows)] for offset in range(BATCH_SENTENCES)]
            translate(batch)
            num_translated += len(batch)
        print(num_translated / (time.perf_counter() - begin), flush=True)


class EngineProcess:
    """`run_engine` in a child process."""

    def __init__(self, model: Path, seconds: float) -> None:
        command = [sys.executable, __file__, "--model", str(model), "--seconds", str(seconds), "--engine-only"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read_line()

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def measure(self, command: str) -> float:
        """Send a command and return its result."""
        assert self.process.stdin is not None
        print(command, file=self.process.stdin, flush=True)
        return float(self.read_line())


@contextmanager
def start_engine(model: Path, seconds: float) -> Iterator[EngineProcess]:
    """An EngineProcess as a context manager."""
    engine = EngineProcess(model, seconds)
    try:
        yield engine
    finally:
        engine.process.kill()
        engine.process.wait()


async def measure_engine_alone(engine: EngineProcess, bodies: Sequence[Any], rate: float, response_bytes: int) -> float:
    """Sentences per second of the engine, while a client sends requests at `rate` to a constant HTTP server."""
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % response_bytes + b" " * response_bytes

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
            )
            await reader.readexactly(length)
            writer.write(response)
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    client = Client(server.sockets[0].getsockname()[1])

    async def send_requests() -> None:
        number = 0
        while True:
            await client.post("/", bodies[number % len(bodies)])
            number += 1
            await asyncio.sleep(1 / rate)

    sender = asyncio.create_task(send_requests())
    speed = await asyncio.to_thread(engine.measure, "batches")
    sender.cancel()
    client.close()
    server.close()
    await asyncio.sleep(0.1)  # until the handlers of the connections have ended
    return speed


# ------------------------------------------------------------------------------------------------------ claims


def compare_with_translate(model: Path, port: int) -> tuple[int, int, float]:
    """(responses with the text and links of `heedful translate`, all responses, largest difference of log p).

    With int8, CTranslate2's log p depends slightly on the other sentences of a batch.
    """
    lines = read_sentences(model)
    local = load(model, threads=THREADS)(lines, alignment="best")
    remote: list[dict[str, Any]] = []
    for start in range(0, len(lines), SENTENCES_PER_REQUEST):
        body = {"texts": lines[start : start + SENTENCES_PER_REQUEST], "tokens": True, "alignment": "best"}
        reply = asyncio.run(Client(port).post("/v1/translate", body))
        remote += json.loads(reply.body)["translations"]
    equal = [
        (here, there)
        for here, there in zip(local, remote, strict=True)
        if here.text == there["text"] and [list(link) for link in here.alignment or ()] == there["alignment"]
    ]
    differences = [
        abs(token.log_probability - remote_token["log_probability"])
        for here, there in equal
        for token, remote_token in zip(here.tokens, there["tokens"], strict=True)
    ]
    return len(equal), len(lines), max(differences)


async def measure_latency(
    port: int, lines: Sequence[str], engine: EngineProcess, count: int
) -> tuple[list[float], list[float]]:
    """Seconds of requests of one sentence, and of the engine alone, alternating."""
    client, http_seconds, engine_seconds = Client(port), list[float](), list[float]()
    for number in range(count):
        reply = await client.post("/v1/translate", {"texts": lines[number % len(lines)], "beam": BEAM})
        assert reply.status == 200, reply
        http_seconds.append(reply.seconds)
        engine_seconds.append(engine.measure(f"one {number % len(lines)}"))
    client.close()
    return http_seconds, engine_seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="an export (default: one of the bundled sample)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine_only:
        run_engine(args.model, args.seconds)
        return 0
    header(__file__)
    with tempfile.TemporaryDirectory() as temporary_dir:
        return measure(args.model or export_sample(Path(temporary_dir) / "sample"), args)


def measure(model: Path, args: argparse.Namespace) -> int:
    """Compare the server with its engine; the exit code."""
    rounds, seconds = (3, 3.0) if args.quick else (args.rounds, args.seconds)
    large, single = make_requests(model, SENTENCES_PER_REQUEST, BEAM), make_requests(model, 1, BEAM)
    begin = time.perf_counter()
    with run_server(model, "--rate", "1e9", "--burst", "1e9", "--queue", "10", threads=THREADS) as (port, _):
        reply = asyncio.run(Client(port).post("/v1/translate", single[0]))
        first_seconds = time.perf_counter() - begin
        print(f"first response after {first_seconds:.2f} s", flush=True)
        num_equal, num_lines, difference = compare_with_translate(model, port)
        print(f"responses equal to heedful translate: {num_equal:,} of {num_lines:,}; log p within {difference:.1e}")
        with start_engine(model, seconds) as engine:
            speeds: dict[str, list[float]] = {"alone": [], "32 per request": [], "1 per request": []}
            rate, response_bytes = 10.0, len(reply.body)
            asyncio.run(closed_loop(Client(port), large, NUM_CLIENTS, 3))
            for turn in range(rounds):
                replies = asyncio.run(closed_loop(Client(port), large, NUM_CLIENTS, seconds))
                rate, response_bytes = len(replies) / seconds, len(replies[0].body)
                speeds["32 per request"].append(sentences_per_second(replies, SENTENCES_PER_REQUEST))
                speeds["alone"].append(asyncio.run(measure_engine_alone(engine, large, rate, response_bytes)))
                replies = asyncio.run(closed_loop(Client(port), single, NUM_SINGLE_CLIENTS, seconds))
                speeds["1 per request"].append(sentences_per_second(replies, 1))
                print(f"round {turn + 1}: " + ", ".join(f"{name} {values[-1]:.0f}" for name, values in speeds.items()))
            http_seconds, engine_seconds = asyncio.run(
                measure_latency(port, read_sentences(model), engine, 60 if args.quick else 300)
            )
    for name, values in speeds.items():
        print(f"{name}: {format_range(values)} sentences/s")
    ratios, single_ratios = (
        [served / alone for served, alone in zip(speeds[name], speeds["alone"], strict=True)]
        for name in ("32 per request", "1 per request")
    )
    added = statistics.median(http_seconds) - statistics.median(engine_seconds)
    print(f"one sentence at low load: {1000 * statistics.median(http_seconds):.1f} ms over HTTP, "
          f"{1000 * statistics.median(engine_seconds):.1f} ms alone")  # fmt: skip
    code = verdict(
        [
            ("texts and links equal to heedful translate (share)", num_equal / num_lines, 1.0),
            ("0.05 - largest difference of log p of a token", 0.05 - difference, 0.0),
            ("over HTTP / alone, 32 sentences a request (median)", statistics.median(ratios), 0.85),
            ("3 s - seconds to the first response", 3.0 - first_seconds, 0.0),
            ("5 ms - added at low load, in ms", 5.0 - 1000 * added, 0.0),
        ]
    )
    print(f"over HTTP / alone: {statistics.median(ratios):.2f} with 32 sentences a request, "
          f"{statistics.median(single_ratios):.2f} with one; added at low load {1000 * added:.1f} ms")  # fmt: skip
    return code


def format_range(values: Sequence[float]) -> str:
    """Median (minimum to maximum)."""
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def sentences_per_second(replies: Sequence[Reply], sentences_per_request: int) -> float:
    """Throughput between the first request and the last response; all must have succeeded."""
    assert all(reply.status == 200 for reply in replies), {reply.status for reply in replies}
    seconds = max(reply.ended_at for reply in replies) - min(reply.ended_at - reply.seconds for reply in replies)
    return sentences_per_request * len(replies) / seconds


if __name__ == "__main__":
    sys.exit(main())
