"""Does `heedful prepare` account for every pair of a hostile corpus?

A million pairs, plain and compressed, as two files, TSV and JSONL; 2 % are hostile: invalid UTF-8, NULs, lone carriage
returns and other line separators, lines of a megabyte, byte order marks, lone surrogates, missing final newlines. They
are prepared with 1, 2 and 4 processes.

    python benchmarks/hostile.py [--quick]
"""

import argparse
import json
import shutil
import sys
import tempfile
from hashlib import file_digest
from importlib import import_module
from pathlib import Path

from report import header, skip, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from heedful.data.store import open_prepared
from support.process_memory import MB, MEASURABLE, watch

made = import_module("support.hostile_corpora")  # of tests/; mypy would take this very file
HEEDFUL = [sys.executable, "-m", "heedful"]


def tree(folder: Path) -> dict[str, str]:
    """sha256 of every file in a directory tree."""
    digests = {}
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                digests[path.relative_to(folder).as_posix()] = file_digest(stream, "sha256").hexdigest()
    return digests


def prepared_by(workers: int, folder: Path) -> tuple[dict[str, str], float]:
    """Prepare with this many processes: hashes of all files, and the peak memory of the largest process in MB."""
    shutil.rmtree(folder / "prepared", ignore_errors=True)
    ran = watch([*HEEDFUL, "prepare", str(folder / "heedful.toml"), "--workers", str(workers)])
    if ran.code:
        raise RuntimeError(ran.error)
    first, *others = ran.peaks
    print(
        f"{workers} workers: {ran.seconds:.1f} s; peak MB: first process {first / MB:.0f}, largest worker "
        f"{max(others, default=0) / MB:.0f}, all at one time {ran.together / MB:.0f}",
        flush=True,
    )
    return tree(folder / "prepared"), max(ran.peaks) / MB


def refused(folder: Path, pairs: int, lost: int) -> tuple[bool, int]:
    """Whether both commands reject files of unequal length with exit code 3, and the error of the named line."""
    source, target = made.write_unequal(folder, pairs, lost)
    check = watch([*HEEDFUL, "check", str(source), str(target), "--json"])
    prepare = watch([*HEEDFUL, "prepare", str(folder / "unequal.toml")])
    finding = next(one for one in json.loads(check.output)["findings"] if one["kind"] == "unequal")
    print(f"line {lost:,} of {pairs:,} lost: {finding['detail']}")
    return check.code == prepare.code == 3, abs(finding["lines"][0] - lost)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="50 thousand pairs")
    given = options.parse_args()
    pairs = 50_000 if given.quick else 1_000_000
    header(__file__)
    if not MEASURABLE:
        return skip("a hostile corpus", "there is no /proc here to measure memory with")
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        corpora = made.write_hostile(folder, pairs)
        kinds = made.planted(corpora)
        size = sum(path.stat().st_size for path in folder.iterdir()) / MB
        print(f"{pairs:,} pairs, {size:,.0f} MB of files, {kinds.total():,} hostile: {dict(kinds)}", flush=True)
        runs = [prepared_by(workers, folder) for workers in (1, 2, 4)]
        files = runs[0][0]
        differing = sum(files.get(path) != other.get(path) for other, _ in runs for path in files | other)
        wrong = made.judge(open_prepared(folder / "prepared"), corpora)
        print(f"{len(files)} files, {differing} of them differ; pairs: {wrong}")
        both, distance = refused(folder, pairs // 10, pairs // 17)
    return verdict(
        [
            *((f"minus pairs {fault.replace('_', ' ')}", -times, 0) for fault, times in wrong.items()),
            ("minus files that differ between 1, 2 and 4 workers", -differing, 0),
            ("minus MB of the largest process", -max(peak for _, peak in runs), -500),
            ("files of unequal length are refused", both, 1),
            ("minus lines between the named place and the lost line", -distance, -5),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
