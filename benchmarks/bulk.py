"""Does a bulk translation that is killed repeatedly produce the same bytes, and what does splitting into pieces cost?

Runs `heedful translate MODEL --bulk IN OUT` on real text in small pieces, with one and with two workers. The command is
killed with kill -9 at random moments of the whole run, including the final join, and rerun until the output exists.
Then the same lines go through `translate_file`, with pieces of the default size, and through one plain translator
stream, interleaved in one process; the cost is the ratio of sentences per second.

    python benchmarks/bulk.py [--model EXPORT] [--quick] [--rounds 5]

EXPORT translates English (HEEDFUL_DATA holds multi30k); an int8 export of a tiny Transformer shows the cost of pieces
best, as it is quick itself. Without it, the bundled sample model is exported.
"""

import argparse
import gzip
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from heedful.corpus.launchers import LocalLauncher
from heedful.translation.bulk import WINDOW_LINES, translate_file
from heedful.translation.loading import load
from heedful.translation.translator import TranslationOptions
from report import header, verdict
from serving import export_sample, sample_lines, translates_portuguese

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"
PATCHED = "heedful.translation.bulk.MIN_PIECE_BYTES"
SMALL_PIECES = f"import heedful.translation.bulk; {PATCHED} = {{}}; from heedful.cli import main; main()"
PIECES = 40  # of the text that is killed at


@dataclass
class Tally:
    """Results of a series of kills."""

    kills: int = 0
    again: int = 0  # pieces that were finished and made again
    same: bool = True


def write_lines(path: Path, model: str, count: int) -> Path:
    """The first lines of the training set of the bundled sample, or of Multi30k for a model from English."""
    if translates_portuguese(Path(model)):
        lines = sample_lines("train.pt")
    else:
        lines = gzip.decompress((DATA / "train.en.gz").read_bytes()).decode().split("\n")[:-1]
    path.write_bytes("".join(line + "\n" for line in (lines * (1 + count // len(lines)))[:count]).encode())
    return path


def command(model: str, given: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    """The command line's own, with pieces so small that there are many."""
    code = SMALL_PIECES.format(-(-given.stat().st_size // PIECES))
    options = ["--bulk", str(given), str(out), "--beam", "1", "--workers", str(workers)]
    with out.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", code, "translate", model, *options], stdout=log, stderr=subprocess.STDOUT
        )


def finished(out: Path) -> dict[str, int]:
    """The finished pieces and their times."""
    rows = out.with_name(f"{out.name}.parts").glob("[0-9]*/shard.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in rows}


def survive(model: str, given: Path, out: Path, workers: int, kills: int, draw: random.Random, tally: Tally) -> None:
    """Kill and rerun until the output exists; each kill happens some pieces later, the last ones during the join."""
    own = 0
    while True:
        before = finished(out)
        target = min(PIECES, len(before) + draw.randint(0, max(1, 2 * (PIECES - len(before)) // (kills - own + 1))))
        running = command(model, given, out, workers)
        while own < kills and len(finished(out)) < target and running.poll() is None:
            time.sleep(0.002)
        if own < kills and running.poll() is None:
            time.sleep(draw.uniform(0, 0.04))
            running.kill()
        code = running.wait()
        if out.exists() and not out.with_name(f"{out.name}.parts").exists():
            return
        if code == 0 or (code > 0 and own < kills):
            raise RuntimeError(out.with_suffix(".log").read_text())
        own, tally.kills = own + 1, tally.kills + 1
        after = finished(out)
        tally.again += 0 if out.exists() else sum(after.get(name) != made for name, made in before.items())


def cost(model: str, given: Path, folder: Path, rounds: int) -> float:
    """Sentences per second in pieces / in one stream; the median over rounds."""
    lines = given.read_text(encoding="utf-8").split("\n")[:-1]
    ratios = []
    for turn in range(rounds + 1):
        begin = time.perf_counter()
        translate_file(model, given, folder / f"turn{turn}", beam=1, launcher=LocalLauncher(1))
        pieces = time.perf_counter() - begin
        begin = time.perf_counter()
        translator = load(model, threads=1)
        windows = (lines[at : at + WINDOW_LINES] for at in range(0, len(lines), WINDOW_LINES))
        with (folder / f"plain{turn}").open("w", encoding="utf-8") as out:
            out.writelines(
                f"{one.text}\n" for one in translator.stream(windows, TranslationOptions(beam=1, tokens=False))
            )
        plain = time.perf_counter() - begin
        print(
            f"turn {turn}: {len(lines) / pieces:,.0f} sentences a second in pieces, {len(lines) / plain:,.0f} in one "
            f"stream{'' if turn else ' (not counted)'}",
            flush=True,
        )
        if turn:
            ratios.append(plain / pieces)
    return statistics.median(ratios)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="5 kills, fewer lines and turns, a looser bound")
    options.add_argument("--model", help="an export (default: one of the bundled sample)")
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    header(__file__)
    min_kills, kills_per_series, few, many = (5, 3, 1200, 3000) if given.quick else (40, 10, 8000, 29_000)
    with tempfile.TemporaryDirectory(prefix="bulk-") as name:
        folder, draw, tally = Path(name), random.Random(1), Tally()
        model = given.model or str(export_sample(folder / "sample"))
        source = write_lines(folder / "in", model, few)
        if command(model, source, folder / "calm", 1).wait() != 0:
            raise RuntimeError((folder / "calm.log").read_text())
        for number in count():  # a series that ends before it was killed as often is followed by one more
            if tally.kills >= min_kills:
                break
            out, before = folder / f"out{number}", tally.kills
            survive(model, source, out, 1 + number % 2, kills_per_series, draw, tally)
            same = out.read_bytes() == (folder / "calm").read_bytes()
            tally.same &= same
            print(
                f"series {number}, {1 + number % 2} workers: {tally.kills - before} kills, "
                f"{'the same bytes' if same else 'OTHER BYTES'}",
                flush=True,
            )
        ratio = cost(model, write_lines(folder / "many", model, many), folder, 3 if given.quick else given.rounds)
        return verdict(
            [
                ("kills", tally.kills, min_kills),
                ("minus finished pieces made again", -tally.again, 0),
                ("same bytes as the undisturbed run", tally.same, 1),
                ("sentences a second in pieces, over one stream", ratio, 0.7 if given.quick else 0.9),
            ]
        )


if __name__ == "__main__":
    sys.exit(main())
