"""Is deduplication exact, with bounded memory and linear time, for any corpus size?

Synthetic pairs of about 250 bytes in two corpora; every fifth pair is a copy of an earlier one, and half of the copies
match only after normalization. One process with one thread reads, cleans and gathers them; its peak memory is measured
relative to its imports. Then every survivor is compared with the expected pair. Wall-clock times include other load:
run it on a quiet machine.

    python benchmarks/dedup.py [--quick]

Full: 2 M and 20 M pairs (5 GB, and three times that of disk). --quick: 200 k and 1 M pairs. Linux only. TMPDIR selects
the directory for temporary files.
"""

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from report import header, skip, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.process_memory import MB, MEASURABLE, prepare_text

hostile = import_module("support.hostile_corpora")  # of tests/; mypy would take its neighbor of that name


def measure(pairs: int) -> dict[str, float]:
    """Time and memory of the stages, and the number of wrong survivors."""
    with tempfile.TemporaryDirectory(prefix="dedup-") as name:
        folder = Path(name)
        corpora = hostile.write_repeated(folder, pairs)
        size = sum(path.stat().st_size for path in folder.iterdir())
        took = prepare_text(folder / "heedful.toml")
        wrong = hostile.judge_survivors(folder / "prepared" / "text", corpora)
    print(f"{pairs:,} pairs, {size / MB:,.0f} MB; {took['counts']['duplicates']:,} duplicates; wrong: {wrong}")
    print(f"   beyond the imports ({took['imports'] / MB:.0f} MB): {took['peak'] / MB:.0f} MB")
    for stage, (wall, processor) in took["seconds"].items():
        print(
            f"   {stage:6} {wall:7.1f} s, {processor:7.1f} s of the processor: "
            f"{pairs / wall:9,.0f} and {pairs / processor:9,.0f} pairs/s"
        )
    sys.stdout.flush()
    walls, processors = zip(*took["seconds"].values(), strict=True)
    return {"peak": took["peak"] / MB, "wrong": sum(wrong.values()), "wall": sum(walls), "processor": sum(processors)}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="200 thousand pairs and a million")
    given = options.parse_args()
    sizes, bound = ((200_000, 1_000_000), 64) if given.quick else ((2_000_000, 20_000_000), 256)
    header(__file__)
    if not MEASURABLE:
        return skip("memory of deduplication", "there is no /proc here")
    small, large = map(measure, sizes)
    factor = sizes[1] / sizes[0]
    return verdict(
        [
            ("minus survivors that are wrong, missing or out of order", -small["wrong"] - large["wrong"], 0),
            ("minus MB beyond the imports, small", -small["peak"], -bound),
            ("minus MB beyond the imports, large", -large["peak"], -bound),
            ("minus wall time per pair, large against small", -large["wall"] / small["wall"] / factor, -1.25),
            ("minus processor time, likewise", -large["processor"] / small["processor"] / factor, -1.25),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
