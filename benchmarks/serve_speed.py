"""How much of CTranslate2's speed is left when it is asked over HTTP?

`heedful serve` with a CTranslate2 export, asked by a client on the same machine, against `translate_batch` alone, in
turns: the same sentences, beam, threads and tokens in a batch. While CTranslate2 works alone the client runs too, at
the same rate, against an HTTP server that says always the same. CTranslate2 alone is given pieces and gives pieces;
the server is given text, and normalizes, cuts, translates, puts together and looks for what is odd.

Claims: requests of 32 sentences at beam 5, at saturation, have at least 0.85 of its speed; at low load the median
request of one sentence takes at most 5 ms longer than `translate_batch` of that sentence; the first answer comes within
3 seconds of `heedful serve`; and every answer is what `heedful translate` says, with its alignment and probabilities.

    python benchmarks/serve_speed.py --model EXPORT [--rounds 7] [--seconds 10] [--quick]
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import heedful
from heedful.translation.translator import BATCH_SENTENCES, BATCH_TOKENS, TranslationOptions
from report import header, verdict
from serving import Client, Reply, closed_loop, requests_of, sentences, served

BEAM, TOGETHER, CLIENTS, SINGLES, THREADS = 5, 32, 10, 256, 2


# ------------------------------------------------------------------------------------------------ the engine alone


def bare(model: Path, seconds: float) -> None:
    """In a process of its own: at every line of its input, work so long, and say how many sentences a second."""
    translator = heedful.load(model, threads=THREADS)
    engine, penalty = translator.engine, translator.bundle.generation.length_penalty
    asked = translator.make_segments(sentences(), TranslationOptions(beam=BEAM), 0)
    rows = engine.spell([segment.source for some in asked for segment in some])
    limit = max(segment.source.max_length for some in asked for segment in some)

    def work(some: Sequence[Sequence[str]]) -> None:
        engine.engine.translate_batch(
            some,
            beam_size=BEAM,
            length_penalty=penalty,
            max_decoding_length=limit,
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            return_scores=True,
        )

    work(rows[:128])
    print("ready", flush=True)
    for line in sys.stdin:
        if line.startswith("one"):
            begin = time.perf_counter()
            work([rows[int(line.split()[1])]])
            print(time.perf_counter() - begin, flush=True)
            continue
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            some = [rows[(done + at) % len(rows)] for at in range(BATCH_SENTENCES)]
            work(some)
            done += len(some)
        print(done / (time.perf_counter() - begin), flush=True)


class Bare:
    """That process, from outside."""

    def __init__(self, model: Path, seconds: float) -> None:
        command = [sys.executable, __file__, "--model", str(model), "--seconds", str(seconds), "--bare"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.heard()

    def heard(self) -> str:
        """A line that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, line: str) -> float:
        """A number."""
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return float(self.heard())


@contextmanager
def bare_process(model: Path, seconds: float) -> Iterator[Bare]:
    """Until the end."""
    one = Bare(model, seconds)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


async def beside(bare: Bare, bodies: Sequence[Any], rate: float, size: int) -> float:
    """The engine alone, with a client at work that asks at the same rate, and is told always the same."""
    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b" " * size

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
            )
            await reader.readexactly(length)
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    client = Client(server.sockets[0].getsockname()[1])

    async def asking() -> None:
        number = 0
        while True:
            await client.post("/", bodies[number % len(bodies)])
            number += 1
            await asyncio.sleep(1 / rate)

    asker = asyncio.create_task(asking())
    found = await asyncio.to_thread(bare.ask, "work")
    asker.cancel()
    client.close()
    server.close()
    await asyncio.sleep(0.1)  # until those who said always the same have heard that nobody asks
    return found


# ------------------------------------------------------------------------------------------------------ claims


def equal(model: Path, port: int) -> tuple[int, int, float]:
    """How many answers have the text and links of `heedful translate`, of how many; log p differs by how much at most.

    CTranslate2's int8 makes log p depend a little on the other sentences of a batch.
    """
    lines = sentences()
    here = heedful.load(model, threads=THREADS)(lines, alignment="best")
    there: list[dict[str, Any]] = []
    for at in range(0, len(lines), TOGETHER):
        body = {"texts": lines[at : at + TOGETHER], "tokens": True, "alignment": "best"}
        reply = asyncio.run(Client(port).post("/v1/translate", body))
        there += json.loads(reply.body)["translations"]
    same = [
        (one, other)
        for one, other in zip(here, there, strict=True)
        if one.text == other["text"] and [list(link) for link in one.alignment or ()] == other["alignment"]
    ]
    apart = [
        abs(token.log_probability - told["log_probability"])
        for one, other in same
        for token, told in zip(one.tokens, other["tokens"], strict=True)
    ]
    return len(same), len(lines), max(apart)


async def late(port: int, alone: Bare, count: int) -> tuple[list[float], list[float]]:
    """Seconds of requests of one sentence, and of the engine alone, in turns."""
    client, lines, over, bare_ones = Client(port), sentences(), list[float](), list[float]()
    for number in range(count):
        reply = await client.post("/v1/translate", {"texts": lines[number % len(lines)], "beam": BEAM})
        assert reply.status == 200, reply
        over.append(reply.seconds)
        bare_ones.append(alone.ask(f"one {number % len(lines)}"))
    client.close()
    return over, bare_ones


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bare", action="store_true", help="(be the engine alone)")
    given = parser.parse_args()
    if given.bare:
        bare(given.model, given.seconds)
        return 0
    header(__file__)
    rounds, seconds = (3, 3.0) if given.quick else (given.rounds, given.seconds)
    many, single = requests_of(TOGETHER, BEAM), requests_of(1, BEAM)
    begin = time.perf_counter()
    with served(given.model, "--rate", "1e9", "--burst", "1e9", "--queue", "10", threads=THREADS) as (port, _):
        reply = asyncio.run(Client(port).post("/v1/translate", single[0]))
        cold = time.perf_counter() - begin
        print(f"first answer after {cold:.2f} s", flush=True)
        same, lines, apart = equal(given.model, port)
        print(f"answers as heedful translate gives them: {same:,} of {lines:,}; log p of a token within {apart:.1e}")
        with bare_process(given.model, seconds) as alone:
            speeds: dict[str, list[float]] = {"alone": [], "32 a request": [], "1 a request": []}
            rate, size = 10.0, len(reply.body)
            asyncio.run(closed_loop(Client(port), many, CLIENTS, 3))
            for turn in range(rounds):
                replies = asyncio.run(closed_loop(Client(port), many, CLIENTS, seconds))
                rate, size = len(replies) / seconds, len(replies[0].body)
                speeds["32 a request"].append(speed(replies, TOGETHER))
                speeds["alone"].append(asyncio.run(beside(alone, many, rate, size)))
                speeds["1 a request"].append(speed(asyncio.run(closed_loop(Client(port), single, SINGLES, seconds)), 1))
                print(f"round {turn + 1}: " + ", ".join(f"{name} {some[-1]:.0f}" for name, some in speeds.items()))
            over, bare_ones = asyncio.run(late(port, alone, 60 if given.quick else 300))
    for name, some in speeds.items():
        print(f"{name}: {spread(some)} sentences/s")
    ratios = [one / other for one, other in zip(speeds["32 a request"], speeds["alone"], strict=True)]
    ones = [one / other for one, other in zip(speeds["1 a request"], speeds["alone"], strict=True)]
    added = statistics.median(over) - statistics.median(bare_ones)
    print(f"one sentence at low load: {1000 * statistics.median(over):.1f} ms over HTTP, "
          f"{1000 * statistics.median(bare_ones):.1f} ms alone")  # fmt: skip
    code = verdict(
        [
            ("texts and links equal to heedful translate (share)", same / lines, 1.0),
            ("0.05 - how far log p of a token is apart", 0.05 - apart, 0.0),
            ("over HTTP / alone, 32 sentences a request (median)", statistics.median(ratios), 0.85),
            ("3 s - seconds to the first answer", 3.0 - cold, 0.0),
            ("5 ms - added at low load, in ms", 5.0 - 1000 * added, 0.0),
        ]
    )
    print(f"over HTTP / alone: {statistics.median(ratios):.2f} with 32 sentences a request, "
          f"{statistics.median(ones):.2f} with one; added at low load {1000 * added:.1f} ms")  # fmt: skip
    return code


def spread(values: Sequence[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def speed(replies: Sequence[Reply], each: int) -> float:
    """Sentences a second, by the time in which the replies came."""
    good = [one for one in replies if one.status == 200]
    assert len(good) == len(replies), {one.status for one in replies}
    return each * len(good) / (max(one.ended for one in good) - min(one.ended - one.seconds for one in good))


if __name__ == "__main__":
    sys.exit(main())
