"""Printed at the start and the end of every benchmark: environment and claims."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path


def header(script: str) -> None:
    """Print date, command, commit and machine."""
    here = Path(script).resolve().parent
    asked = subprocess.run(
        ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    print(f"# date     {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(f"# command  python benchmarks/{Path(script).name} {' '.join(sys.argv[1:])}".rstrip())
    print(f"# commit   {asked.stdout.strip() or 'unknown'}")
    print(f"# machine  {processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}")
    try:
        import torch
    except ModuleNotFoundError:
        return
    print(f"# torch    {torch.__version__}, {torch.get_num_threads()} threads")


def processor() -> str:
    """The name of the processor and its vector extensions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    wide = [flag for flag in ("avx2", "avx512f", "amx_bf16") if flag in facts.get("flags", "").split()]
    return f"{facts.get('model name', 'unknown')} ({', '.join(wide)})"


def verdict(claims: Iterable[tuple[str, float, float]]) -> int:
    """Print every claim (description, measured value, minimum); return the exit code, 1 if a claim fails."""
    broken = 0
    for what, measured, least in claims:
        holds = measured >= least
        broken += not holds
        print(f"{'ok  ' if holds else 'MISS'} {what}: {measured:.3f} (claimed >= {least:.3f})")
    return int(broken > 0)
