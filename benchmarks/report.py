"""What benchmarks share: the corpora, what they print first and last, and what they print if they cannot measure."""

import gzip
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def read_lines(name: str) -> list[str]:
    """The lines of a gzip file of HEEDFUL_DATA, such as "ntrex/newstest2019-src.eng.txt.gz"."""
    if not DATA.is_dir():
        sys.exit(f"{DATA} does not exist: set HEEDFUL_DATA to the directory of the corpora")
    return gzip.decompress((DATA / name).read_bytes()).decode().splitlines()


def header(script: str) -> None:
    """Date, command, commit and machine."""
    folder = Path(script).resolve().parent
    describe = subprocess.run(
        ["git", "-C", str(folder), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    print(f"# date     {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(f"# command  python benchmarks/{Path(script).name} {' '.join(sys.argv[1:])}".rstrip())
    print(f"# commit   {describe.stdout.strip() or 'unknown'}")
    print(f"# machine  {processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}")
    try:
        import torch
    except ModuleNotFoundError:
        return
    print(f"# torch    {torch.__version__}, {torch.get_num_threads()} threads")


def processor() -> str:
    """The processor's name and its vector extensions."""
    facts = cpu_facts()
    if not facts:
        return platform.processor() or platform.machine()
    extensions = [flag for flag in ("avx2", "avx512f", "amx_bf16") if flag in facts.get("flags", "").split()]
    return f"{facts.get('model name', 'unknown')} ({', '.join(extensions)})"


def cpu_facts() -> dict[str, str]:
    """The fields of /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def bf16_problem() -> str:
    """Why claims about bf16 cannot be measured here; empty if the processor has instructions for it."""
    facts = cpu_facts()
    flags = f"{facts.get('flags', '')} {facts.get('Features', '')}".split()  # x86, ARM
    if {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags):
        return "this processor has no bf16 instructions (AVX512_BF16, AMX_BF16 or ARM BF16)"
    return ""


def skip(what: str, why: str) -> int:
    """Print that a claim is not measured here (run.py recognizes the line); returns the exit code 0."""
    print(f"SKIP {what}: {why}", flush=True)
    return 0


def verdict(claims: Iterable[tuple[str, float, float]]) -> int:
    """Print every claim (what, measured, minimum) and return the exit code: 1 if any does not hold."""
    misses = 0
    for what, measured, minimum in claims:
        holds = measured >= minimum
        misses += not holds
        print(f"{'ok  ' if holds else 'MISS'} {what}: {measured:.3f} (claimed >= {minimum:.3f})")
    return int(misses > 0)
