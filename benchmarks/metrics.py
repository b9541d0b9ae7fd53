"""Are the numbers right? Ours against sacreBLEU's on random corpora, and all of them against published ones.

The arithmetic that `heedful evaluate --explain` shows is compared with sacreBLEU on random corpora with 1, 2 and 4
references and every smoothing; the scores of `heedful evaluate` and the p-values of `heedful compare` with those that
come with the system outputs of WMT22 and WMT17; alignment error rates with the published ones.

    python benchmarks/metrics.py [--quick]

HEEDFUL_DATA is the folder that holds wmt22-systems, wmt17-ende-systems and gold-alignments (default: ../shared/data
beside the repository). --quick: fewer corpora and systems, no TER, no approximate randomization; in full, nearly all of
the time is sacreBLEU's TER.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from functools import reduce
from math import sqrt
from operator import add
from pathlib import Path
from random import Random
from time import process_time

import sacrebleu

from heedful.cli.systems import texts_of
from heedful.metrics.alignment_error import agreement, parse, parse_gold
from heedful.metrics.ngrams import SMOOTHINGS, bleu, bleu_counts, chrf, chrf_counts
from heedful.metrics.score import Options, score, tokenizer
from heedful.metrics.significance import paired
from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TEXT = "the a cat dog sat on of mat, mat. and is was ran (not) it's 3.14 кот на лавку — 一只狗 Straße U.S."
WORDS = TEXT.split()
NEAR = 1e-9
REFERENCES = (1, 2, 4)
WMT22 = {
    "BLEU": ("bleu", Options()),
    "BLEU-lc": ("bleu", Options(lowercase=True)),
    "BLEU-intl": ("bleu", Options("intl")),
    "BLEU-char": ("bleu", Options("char")),
    "chrF": ("chrf", Options()),
    "chrF++": ("chrf++", Options()),
    "TER": ("ter", Options()),
}
BASELINE = "LIUM-NMT.4900"
AER = {"enfr": 0.04069, "roen": 0.20746, "jaen": 0.37358, "zhen": 0.13314}
Claim = tuple[str, float, float]
Rows = list[tuple[str, list[str]]]  # a hypothesis and its references


def sentence(random: Random) -> list[str]:
    """Of any length, also none."""
    return random.choices(WORDS, k=random.choice((0, 1, 2, 3, 5, 8, 13, 21)))


def resembling(words: Sequence[str], random: Random) -> str:
    """The same with some words lost, repeated or replaced, so that n-grams of every order match and are clipped."""
    fates = ("", "{0}", "{0}", "{0}", "{0} {0}", "{1}")
    return " ".join(random.choice(fates).format(word, random.choice(WORDS)) for word in words)


def corpus(random: Random, references: int) -> Rows:
    """Some hypotheses, each with its references."""
    originals = [sentence(random) for _ in range(random.randint(1, 8))]
    return [(resembling(one, random), [resembling(one, random) for _ in range(references)]) for one in originals]


def bleu_apart(rows: Rows, smoothing: str) -> tuple[float, float, bool]:
    """How far our BLEU of a corpus is from sacreBLEU's, how far at most that of a line; and was anything smoothed?"""
    cut = tokenizer(Options())
    counts = [bleu_counts(cut(text), [cut(one) for one in some]) for text, some in rows]
    texts, others = [text for text, _ in rows], list(zip(*(some for _, some in rows), strict=True))
    theirs = sacrebleu.BLEU(smooth_method=smoothing).corpus_score(texts, others).score
    ours = bleu(reduce(add, counts), smoothing)
    alone = sacrebleu.BLEU(smooth_method=smoothing, effective_order=True)
    lines = (
        abs(bleu(one, smoothing, effective=True) - alone.sentence_score(*row).score)
        for one, row in zip(counts, rows, strict=True)
    )
    return abs(ours - theirs), max(lines), ours != bleu(reduce(add, counts), "none")


def chrf_apart(rows: Rows) -> float:
    """How far our chrF of a corpus is from sacreBLEU's."""
    texts, others = [text for text, _ in rows], list(zip(*(some for _, some in rows), strict=True))
    counts = [reduce(add, some) for some in zip(*(chrf_counts(*row) for row in rows), strict=True)]
    return abs(chrf(counts) - float(sacrebleu.CHRF().corpus_score(texts, others).score))


def arithmetic(number: int) -> Iterator[Claim]:
    """How far our own arithmetic is from sacreBLEU, at the most."""
    random, worst = Random(1), 0.0
    print(f"\n{number:,} random corpora for every number of references: the largest difference to sacreBLEU")
    print(f"{'references':>10} {'':>10} {'of corpora':>11} {'of lines':>10} {'smoothed':>10}")
    for references in REFERENCES:
        corpora = [corpus(random, references) for _ in range(number)]
        far = max(map(chrf_apart, corpora))
        print(f"{references:>10} {'chrF':>10} {far:>11.1e}")
        worst = max(worst, far)
        for smoothing in SMOOTHINGS:
            totals, lines, touched = zip(*(bleu_apart(rows, smoothing) for rows in corpora), strict=True)
            cells = f"{max(totals):>11.1e} {max(lines):>10.1e} {sum(touched):>10,}"
            print(f"{references:>10} {'BLEU ' + smoothing:>10} {cells}", flush=True)
            worst = max(worst, *totals, *lines)
    yield f"our BLEU and chrF are sacreBLEU's within {NEAR:g}", float(worst <= NEAR), 1.0


def published_scores(quick: bool) -> Iterator[Claim]:
    """WMT22: 39 systems, seven settings, to the last digit."""
    folder = DATA / "wmt22-systems"
    rows = [line.split("\t") for line in (folder / "expected-sacrebleu-2.6.0.tsv").read_text().splitlines()[1:]]
    systems = list(dict.fromkeys((row[0], row[1]) for row in rows))[:: 10 if quick else 1]
    expected = {(row[0], row[1], row[3]): float(row[4]) for row in rows if (row[0], row[1]) in systems}
    equal = {name: 0 for name in WMT22 if not (quick and name == "TER")}
    texts: dict[str, list[str]] = {}
    for pair, system in systems:
        stem, target = f"{folder}/generaltest2022.{pair}", pair.split("-")[1]
        if pair not in texts:
            texts[pair] = texts_of(f"{stem}.ref.A.{target}.gz")
        said = texts_of(f"{stem}.hyp.{system}.{target}.gz")
        for name in equal:
            metric, options = WMT22[name]
            equal[name] += score(metric, said, texts[pair], options=options).value == expected[pair, system, name]
    print(f"\nWMT22, {len(systems)} systems with sacreBLEU {sacrebleu.__version__}: equal to the last digit")
    for name, count in equal.items():
        print(f"{name:>10} {count:>4} of {len(systems)}")
    yield "published scores that are equal, share", sum(equal.values()) / (len(equal) * len(systems)), 1.0


def published_chances(quick: bool) -> Iterator[Claim]:
    """WMT17: p-values of 15 systems against one, of two tests."""
    folder = DATA / "wmt17-ende-systems"
    head, *rows = (line.split("\t") for line in (folder / "expected-p-values.tsv").read_text().splitlines())
    rows = rows[:: 5 if quick else 1]
    references = texts_of(str(folder / "ref.de.gz"))
    names = [BASELINE, *(row[0] for row in rows)]
    systems = {name: texts_of(str(folder / f"hyp.{name}.de.gz")) for name in names}
    tests = {head[1]: ("bleu", "bs", 2000), head[2]: ("bleu", "ar", 10_000), head[3]: ("ter", "ar", 10_000)}
    found: dict[str, dict[str, float | None]] = {}
    for column, (metric, test, samples) in list(tests.items())[: 1 if quick else None]:
        some = paired([metric], systems, references, test=test, samples=samples, options=Options("none"))
        found[column] = {one.system: one.p for one in some}
    print(f"\nWMT17 en-de, p-values against {BASELINE}: published and ours")
    print(f"{'system':>24} " + "".join(f"{column.removesuffix('_p'):>28}" for column in found))
    far = []
    for name, *published in rows:
        cells = []
        for column, value in zip(found, published, strict=False):
            ours = found[column][name]
            assert ours is not None
            far.append((abs(float(value) - ours), doubt(float(value), tests[column][2])))
            cells.append(f"{float(value):>18.5f} {ours:>9.5f}")
        print(f"{name:>24} " + "".join(cells))
    print(f"largest difference {max(far)[0]:.5f}; {sum(one > 0.01 for one, _ in far)} of {len(far)} above 0.01")
    yield "published p-values within 0.01 or what drawing leaves open, share", share(far), 1.0


def doubt(p: float, samples: int) -> float:
    """Three standard errors of the difference between two p-values that were both drawn so often."""
    return 3 * sqrt(2 * p * (1 - p) / samples)


def share(far: Sequence[tuple[float, float]]) -> float:
    """Of differences that are small, or no larger than chance makes them."""
    return sum(one <= max(0.01, open_) for one, open_ in far) / len(far)


def published_alignments() -> Iterator[Claim]:
    """Alignment error rates of a public aligner's output."""
    folder, right = DATA / "gold-alignments", 0
    print("\nalignment error rates: published and ours")
    for pair, expected in AER.items():
        gold = [parse_gold(line, first=1) for line in texts_of(str(folder / f"{pair}.gold"))]
        found = agreement([parse(line) for line in texts_of(str(folder / f"{pair}.awesome-align.out"))], gold)
        right += abs(found.error_rate - expected) < 5e-6
        rates = f"precision {found.precision:.4f}  recall {found.recall:.4f}"
        print(f"{pair:>10} {expected:>9.5f} {found.error_rate:>9.5f}  {rates}")
    yield "published alignment error rates that are equal, share", right / len(AER), 1.0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer corpora and systems, the fast metrics")
    given = options.parse_args()
    header(__file__)
    claims: list[Claim] = []
    for part in (
        arithmetic(100 if given.quick else 1000),
        published_alignments(),
        published_scores(given.quick),
        published_chances(given.quick),
    ):
        claims += list(part)
        print(f"({process_time():.0f} s of one core so far)", flush=True)
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
