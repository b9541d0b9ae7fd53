"""Does `heedful translate` keep its lines in order, for any input?

100,000 lines go through a pipe: captions, blank lines, lines of spaces, CRLF, invalid UTF-8, separators that other
programs split at, lines of 10 kB. The same number of lines must come out in the same order: each caption has the same
translation everywhere, and blank lines stay blank. With `head -n 5` as the reader, the pipe must end silently.

Then 100,000 texts that Hypothesis draws from a grammar of Unicode (scripts, marks, emoji, spellings of special tokens,
numbers, links, lone surrogates) go through a translator with a small model, trained for this purpose because the output
does not matter: without an exception and in bounded time.

    python benchmarks/pipes.py [--model MODEL] [--quick]

Without --model, the small model translates the lines too. --quick: 2,000 lines and 1,000 texts.
"""

import argparse
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from heedful.translation.loading import load
from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"
TEXTS = 100  # in one example of hypothesis
KINDS = {  # how often each kind of line is drawn
    "caption": 70,
    "blank": 10,
    "spaces": 3,
    "crlf": 10,
    "not utf-8": 3,
    "separators": 3,
    "10 kB": 0.05,
}


def captions() -> list[str]:
    with gzip.open(DATA / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as lines:
        return lines.read().splitlines()


def drawn(count: int) -> list[tuple[str, bytes]]:
    """Lines and their kinds."""
    draw, texts = random.Random(1), captions()
    found = []
    for kind in draw.choices(list(KINDS), list(KINDS.values()), k=count):
        text = draw.choice(texts)
        made = {
            "caption": text.encode(),
            "blank": b"",
            "spaces": b" \t ",
            "crlf": text.encode() + b"\r",
            "not utf-8": text.encode()[:10] + b"\xff\xfe" + text.encode()[10:],
            "separators": "\u2028".join(text.split(" ")[:6]).encode() + b"\x0b\x0c",
            "10 kB": (" ".join(draw.choices(texts, k=200)).encode())[:10_000],
        }
        found.append((kind, made[kind]))
    return found


def command(model: str) -> list[str]:
    return [sys.executable, "-m", "heedful", "translate", model, "--beam", "1"]


def piped(model: str, lines: list[tuple[str, bytes]]) -> tuple[int, int, int]:
    """The numbers of missing lines, misplaced lines and tracebacks."""
    given = b"".join(line + b"\n" for _, line in lines)
    begin = time.perf_counter()
    done = subprocess.run(command(model), input=given, capture_output=True, check=True)
    spent = time.perf_counter() - begin
    said = done.stdout.split(b"\n")[:-1]
    print(f"{len(lines):,} lines in, {len(said):,} out in {spent:.0f} s, {len(lines) / spent:.0f} lines/s", flush=True)
    answer: dict[bytes, bytes] = {}
    wrong = 0
    for (kind, line), out in zip(lines, said, strict=False):
        if kind in ("blank", "spaces"):
            wrong += out != b""
        elif kind in ("caption", "crlf"):
            wrong += answer.setdefault(line.removesuffix(b"\r"), out) != out
    wrong += sum(not out for out in answer.values())
    print(f"{len(answer):,} different captions, {len(set(answer.values())):,} different answers, {wrong} wrong")
    return abs(len(lines) - len(said)), wrong, done.stderr.count(b"Traceback")


def headed(model: str, lines: list[tuple[str, bytes]]) -> tuple[int, int]:
    """Exit code and tracebacks of a pipe whose reader stops after five lines."""
    with tempfile.TemporaryFile() as source:
        source.write(b"".join(line + b"\n" for _, line in lines))
        source.seek(0)
        begin = time.perf_counter()
        first = subprocess.Popen(command(model), stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert first.stdout is not None
        head = subprocess.Popen(["head", "-n", "5"], stdin=first.stdout, stdout=subprocess.PIPE)
        first.stdout.close()  # head alone has it now
        came = head.communicate()[0].count(b"\n")
        after, said = time.perf_counter() - begin, first.communicate()[1]
    whole = time.perf_counter() - begin
    print(
        f"head: {came} lines after {after:.1f} s; heedful ended after {whole:.1f} s with {first.returncode}", flush=True
    )
    return first.returncode, said.count(b"Traceback")


def texts() -> st.SearchStrategy[str]:
    """A grammar of awkward Unicode."""
    # latin, cyrillic, greek, arabic, hebrew, han, hiragana, hangul, devanagari, thai
    starts = (0x61, 0x430, 0x3B1, 0x627, 0x5D0, 0x4E00, 0x3042, 0xAC00, 0x905, 0xE01)
    words = st.one_of(
        *(st.text(st.characters(min_codepoint=at, max_codepoint=at + 25), min_size=1, max_size=8) for at in starts)
    )
    odd = st.sampled_from(
        [
            "</s>",
            "<s>",
            "<unk>",
            "<pad>",
            "<2de>",
            "<0x0A>",
            "\u2581",
            "\u200d",
            "👩\u200d👧",
            "🇧🇷",
            "e\u0301\u0301",
            "\ufeff",
        ]
    )
    marks = st.text(st.characters(min_codepoint=0x300, max_codepoint=0x36F), max_size=30)
    plain = st.sampled_from(
        ["1.234,56", "https://example.org/a?b=c", "a@b.org", "(", "...", "\r", "\u2028", "\x00", "\n"]
    )
    anything = st.text(st.characters(codec=None), max_size=12)
    part = st.one_of(words, words, plain, odd, marks, anything)
    return st.lists(part, max_size=8).map(" ".join) | st.tuples(part, st.integers(1, 20)).map(
        lambda two: two[0] * two[1]
    )


def fuzzed(model: str, count: int, size: int) -> tuple[int, float, float]:
    """Exceptions, the slowest example, and the slowest of one long text."""
    translator = load(model)
    failures, slowest, done = 0, 0.0, 0

    @seed(1)
    @settings(
        max_examples=count // TEXTS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(texts(), min_size=TEXTS, max_size=TEXTS))
    def answered(some: list[str]) -> None:
        nonlocal failures, slowest, done
        begin = time.perf_counter()
        try:
            found = translator(some, beam=1)
            failures += any(one.text.count("\n") != text.count("\n") for one, text in zip(found, some, strict=True))
        except Exception as error:  # whatever it is, it is counted and shown
            failures += 1
            print(f"# {type(error).__name__}: {error}"[:300])
        slowest = max(slowest, time.perf_counter() - begin)
        done += len(some)

    begin = time.perf_counter()
    answered()
    spent = time.perf_counter() - begin
    print(f"{done:,} texts in {spent:.0f} s, {failures} failures, slowest {TEXTS} in {slowest:.1f} s", flush=True)
    longest = 0.0
    for text in ("a ", "x", "\u0301", "(", "1", "。", "Wer? "):
        begin = time.perf_counter()
        translator(text * (size // len(text.encode())), beam=1)
        longest = max(longest, time.perf_counter() - begin)
    print(f"texts of {size // 1000} kB: {longest:.1f} s at most")
    return failures, slowest, longest


SMALL = (
    "width=32",
    "encoder.layers=1",
    "decoder.layers=1",
    "encoder.feedforward_size=32",
    "decoder.feedforward_size=32",
)


def trained(folder: str) -> str:
    """A small model after a hundred steps."""
    files = [str(DATA / f"train.{side}.gz") for side in ("en", "de")]
    options = ["--out", folder, "--recipe", "transformer-tiny", "--steps", "100"]
    small = [*(f"model.{one}" for one in SMALL), "train.validate_pairs=20"]
    changes = [word for one in small for word in ("--set", one)]
    subprocess.run([sys.executable, "-m", "heedful", "train", *files, *options, *changes], check=True)
    return folder


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--model", help="a model that translates English")
    asked = options.parse_args()
    header(__file__)
    with tempfile.TemporaryDirectory() as made:
        small = trained(made)
        model = asked.model or small
        lines = drawn(2_000 if asked.quick else 100_000)
        missing, wrong, traces = piped(model, lines)
        code, more = headed(model, lines)
        failures, slowest, longest = fuzzed(small, *((1_000, 5_000) if asked.quick else (100_000, 100_000)))
    return verdict(
        [
            ("lines missing or too many, negative", -missing, 0.0),
            ("lines in a wrong place, negative", -wrong, 0.0),
            ("tracebacks, negative", -traces - more, 0.0),
            ("exit code behind head, negative", -code, 0.0),
            ("fuzzed texts that failed, negative", -failures, 0.0),
            (f"seconds below 60 of the slowest {TEXTS} texts", 60 - slowest, 0.0),
            ("seconds below 120 of a long text", 120 - longest, 0.0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
