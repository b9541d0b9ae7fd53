"""Does `heedful check` find faults in a corpus, without false alarms?

Faults of every kind are planted into Multi30k en-de, Tatoeba eng-por and eng-rus, written to files and examined. A
fault counts as found if a finding of its kind names its line and file; a shift, if the named first line is within five
lines. Findings in the unmodified corpora are counted by level.

    python benchmarks/doctor.py [--quick]

HEEDFUL_DATA is the directory of the corpora (default: ../shared/data next to the repository).
"""

import argparse
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from heedful.corpus.check import check
from heedful.corpus.findings import LEVELS, Report
from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.corpus_faults import (
    CORPORA,
    LEAKS,
    LINE_FAULTS,
    WHOLE_FAULTS,
    Material,
    Stretch,
    material,
    plant,
    shifted,
    some_stretches,
    unzipped,
    written,
)

NEAR = 5  # lines within which the beginning of a shift must be named
Score = Counter[str]  # name -> how many


def examined(given: Material, source: Sequence[str], target: Sequence[str]) -> Report:
    """Check a training text."""
    with tempfile.TemporaryDirectory() as folder:
        return check(written(Path(folder), {"train": (source, target)}, given.source, given.target))


def examined_all(given: Material) -> Report:
    """Check training, validation and test texts."""
    parts = {"train": given.pairs, "validation": given.validation, "test": given.test}
    with tempfile.TemporaryDirectory() as folder:
        texts = {split: unzipped(pairs) for split, pairs in parts.items()}
        return check(written(Path(folder), texts, given.source, given.target))


def named(report: Report, kinds: Sequence[str], ending: str = "") -> set[int]:
    """The lines of the training text in findings of some kinds, for the file with this suffix."""
    found = [one for one in report.findings if one.kind in kinds and one.corpus == "train"]
    return {int(line) for one in found if one.file.endswith(ending) for line in one.lines}


def examine_lines(given: Material, each: int, seed: int) -> Score:
    """Faults in single lines: the number found of each kind."""
    planted = plant(given, each, seed)
    report = examined_all(replace(given, pairs=planted.pairs))
    found = Counter[str]()
    for name, lines in planted.where.items():
        fault = LINE_FAULTS[name]
        ending = "" if fault.side is None else f".{getattr(given, fault.side)}"
        found[name] = len(set(lines) & named(report, fault.kinds, ending))
    return found


def examine_files(given: Material, seed: int) -> Score:
    """Faults of whole files: whether each was found."""
    found = Counter[str]()
    for name, fault in WHOLE_FAULTS.items():
        report = examined_all(fault.spoil(Random(seed), given))
        kinds = {one.kind for one in report.findings if one.corpus == fault.corpus}
        found[name] = int(bool(kinds & set(fault.kinds)))
    return found


def distance(report: Report, stretch: Stretch) -> int | None:
    """Lines between the true and the reported start of a shift; None if it is not reported."""
    lines = named(report, ("shift",))
    inside = [line for line in range(stretch.begin + 1, stretch.begin + stretch.length + 1) if line in lines]
    if not inside:
        return None
    begin = inside[0]
    while begin - 1 in lines:
        begin -= 1
    return abs(begin - int(stretch.begin) - 1)


def examine_shifts(given: Material, files: int, seed: int) -> tuple[list[int | None], list[int | None]]:
    """The distances for shifts in the middle of a file and shifts up to its end."""
    draw, rows = Random(seed), len(given.pairs)
    sources, targets = unzipped(given.pairs)
    filler = draw.sample(unzipped(given.test)[1], 200)
    middle, end = [], []
    for _ in range(files):
        stretches, spoiled = some_stretches(draw, rows, 4), targets
        for stretch in stretches:
            spoiled = shifted(spoiled, stretch, draw.sample(filler, len(filler)))
        report = examined(given, sources, spoiled)
        middle += [distance(report, stretch) for stretch in stretches]
    for share in (0.1, 0.5, 0.9)[: files + 1]:
        begin = int(share * rows)
        stretch = Stretch(begin, rows - begin, draw.choice((1, 2, 12, 40, 150)) * draw.choice((-1, 1)))
        end.append(distance(examined(given, sources, shifted(targets, stretch, filler)), stretch))
    return middle, end


def examine_unequal(given: Material, files: int, seed: int) -> list[int | None]:
    """Lines deleted or added in one file: the distances to the reported place of divergence."""
    draw, distances = Random(seed), list[int | None]()
    for _ in range(files):
        texts = list(unzipped(given.pairs))
        side, place, number = draw.randrange(2), draw.randrange(len(given.pairs) - 10), draw.choice((1, 1, 1, 2, 5))
        extra = draw.sample([pair[side] for pair in given.test], number)
        whole = texts[side]
        texts[side] = whole[:place] + (whole[place + number :] if draw.random() < 0.5 else extra + whole[place:])
        lines = named(examined(given, *texts), ("unequal",))
        distances.append(abs(lines.pop() - place - 1) if lines else None)
    return distances


def share(found: float, planted: float) -> float:
    return found / planted if planted else 1.0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer faults in shorter files")
    quick = options.parse_args().quick
    header(__file__)
    most, small, each, files, partings = (8_000, 1_500, 10, 1, 2) if quick else (30_000, 5_000, 40, 10, 12)
    found, whole = Counter[str](), Counter[str]()
    middle, end, unequal = list[int | None](), list[int | None](), list[int | None]()
    clean: dict[str, Report] = {}
    for seed, name in enumerate(CORPORA):
        given = material(name)
        clean[name] = examined_all(given)
        given = material(name, most)
        found += examine_lines(given, each, seed)
        whole += examine_files(material(name, small), seed)
        some, others = examine_shifts(given, files, seed)
        middle, end = middle + some, end + others
        unequal += examine_unequal(given, partings, seed)
        print(f"{name}: {len(given.pairs):,} pairs examined", flush=True)

    planted = each * len(CORPORA)
    print(f"\n{'fault':26} planted  found  recall")
    for name, fault in LINE_FAULTS.items():
        mark = "  statistical" if fault.statistical else ""
        print(f"{name:26} {planted:7} {found[name]:6} {share(found[name], planted):7.1%}{mark}")
    for name in WHOLE_FAULTS:
        print(f"{name:26} {len(CORPORA):7} {whole[name]:6} {share(whole[name], len(CORPORA)):7.1%}")
    for what, distances in (("shift in the middle", middle), ("shift to the end", end), ("unequal counts", unequal)):
        seen = [one for one in distances if one is not None]
        near = sum(one <= NEAR for one in seen)
        print(
            f"{what:26} {len(distances):7} {len(seen):6} {share(len(seen), len(distances)):7.1%}  within {NEAR} lines: "
            f"{share(near, len(distances)):.1%}, median {statistics.median(seen)}, largest {max(seen)}"
        )
    print("\ncorpora as they are")
    for name, report in clean.items():
        for level in LEVELS:
            kinds = Counter[str]()
            for finding in report.findings:
                kinds[finding.kind] += finding.count * (finding.level == level)
            listed = ", ".join(f"{kind} {count}" for kind, count in kinds.items() if count)
            print(f"{name:12} {sum(report.pairs.values()):8,} pairs  {level:8} {listed or '-'}")

    def recall(statistical: bool) -> float:
        names = [name for name, fault in LINE_FAULTS.items() if fault.statistical == statistical]
        return share(sum(found[name] for name in names), planted * len(names))

    shifts = middle + end
    close = sum(one is not None and one <= NEAR for one in shifts)
    total = planted * len(LINE_FAULTS) + len(CORPORA) * len(WHOLE_FAULTS) + len(shifts) + len(unequal)
    alarms = sum(finding.level == "error" for report in clean.values() for finding in report.findings)
    print()
    return verdict(
        [
            ("faults planted", total, 900 if quick else 2_000),
            ("mechanical faults of lines found", recall(False), 0.99),
            ("statistical faults of lines found", recall(True), 0.90),
            ("faults of whole files found", share(sum(whole.values()), len(CORPORA) * len(WHOLE_FAULTS)), 0.99),
            (f"shifts found, their beginning within {NEAR} lines", share(close, len(shifts)), 0.90),
            ("files of unequal counts found", share(sum(one is not None for one in unequal), len(unequal)), 0.99),
            ("leaks found", share(sum(found[name] for name in LEAKS), planted * len(LEAKS)), 1.0),
            ("minus errors in corpora as they are", -alarms, 0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
