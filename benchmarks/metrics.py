"""Do heedful's scores match sacreBLEU's and published scores?

- the formulas of `heedful evaluate --explain` against sacreBLEU, on random corpora with 1, 2 and 4 references and every
  smoothing method
- the scores of `heedful evaluate` and the p-values of `heedful compare` against those published with the system outputs
  of WMT22 and WMT17
- alignment error rates against published ones

    python benchmarks/metrics.py [--quick]

HEEDFUL_DATA is the directory with wmt22-systems, wmt17-ende-systems and gold-alignments (default: ../shared/data next
to the repository). --quick: fewer corpora and systems, no TER, no approximate randomization. sacreBLEU's TER takes
nearly all of the time of a full run.
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

from heedful.metrics.alignment_error import measure_agreement, parse_gold, parse_links
from heedful.metrics.ngrams import SMOOTHINGS, bleu, bleu_counts, chrf, chrf_counts
from heedful.metrics.score import MetricOptions, make_tokenizer, score
from heedful.metrics.significance import run_paired_test
from heedful.translation.evaluation import read_lines
from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TEXT = "the a cat dog sat on of mat, mat. and is was ran (not) it's 3.14 кот на лавку — 一只狗 Straße U.S."
WORDS = TEXT.split()
MAX_DIFFERENCE = 1e-9
REFERENCES = (1, 2, 4)
WMT22 = {
    "BLEU": ("bleu", MetricOptions()),
    "BLEU-lc": ("bleu", MetricOptions(lowercase=True)),
    "BLEU-intl": ("bleu", MetricOptions("intl")),
    "BLEU-char": ("bleu", MetricOptions("char")),
    "chrF": ("chrf", MetricOptions()),
    "chrF++": ("chrf++", MetricOptions()),
    "TER": ("ter", MetricOptions()),
}
BASELINE = "LIUM-NMT.4900"
AER = {"enfr": 0.04069, "roen": 0.20746, "jaen": 0.37358, "zhen": 0.13314}
Claim = tuple[str, float, float]
Corpus = list[tuple[str, list[str]]]  # a hypothesis and its references


def random_words(random: Random) -> list[str]:
    """Words of a sentence of random length, which may be 0."""
    return random.choices(WORDS, k=random.choice((0, 1, 2, 3, 5, 8, 13, 21)))


def vary_words(words: Sequence[str], random: Random) -> str:
    """The words with a few deleted, repeated or replaced, so that n-grams of every order match and are clipped."""
    fates = ("", "{0}", "{0}", "{0}", "{0} {0}", "{1}")
    return " ".join(random.choice(fates).format(word, random.choice(WORDS)) for word in words)


def random_corpus(random: Random, references: int) -> Corpus:
    """A few hypotheses, each with its references."""
    originals = [random_words(random) for _ in range(random.randint(1, 8))]
    return [(vary_words(words, random), [vary_words(words, random) for _ in range(references)]) for words in originals]


def bleu_differences(rows: Corpus, smoothing: str) -> tuple[float, float, bool]:
    """The differences of our BLEU to sacreBLEU's, for the corpus and the worst line; and whether smoothing mattered."""
    tokenize = make_tokenizer(MetricOptions())
    counts = [bleu_counts(tokenize(text), list(map(tokenize, references))) for text, references in rows]
    texts, references = [text for text, _ in rows], list(zip(*(lines for _, lines in rows), strict=True))
    theirs = sacrebleu.BLEU(smooth_method=smoothing).corpus_score(texts, references).score
    ours = bleu(reduce(add, counts), smoothing)
    line_metric = sacrebleu.BLEU(smooth_method=smoothing, effective_order=True)
    differences = (
        abs(bleu(line_counts, smoothing, effective=True) - line_metric.sentence_score(*row).score)
        for line_counts, row in zip(counts, rows, strict=True)
    )
    return abs(ours - theirs), max(differences), ours != bleu(reduce(add, counts), "none")


def chrf_difference(rows: Corpus) -> float:
    """The difference of our chrF to sacreBLEU's."""
    texts, references = [text for text, _ in rows], list(zip(*(lines for _, lines in rows), strict=True))
    counts = [reduce(add, order) for order in zip(*(chrf_counts(*row) for row in rows), strict=True)]
    return abs(chrf(counts) - float(sacrebleu.CHRF().corpus_score(texts, references).score))


def compare_arithmetic(number: int) -> Iterator[Claim]:
    """The largest difference of our formulas to sacreBLEU."""
    random, worst = Random(1), 0.0
    print(f"\n{number:,} random corpora for every number of references: the largest difference to sacreBLEU")
    print(f"{'references':>10} {'':>10} {'of corpora':>11} {'of lines':>10} {'smoothed':>10}")
    for references in REFERENCES:
        corpora = [random_corpus(random, references) for _ in range(number)]
        far = max(map(chrf_difference, corpora))
        print(f"{references:>10} {'chrF':>10} {far:>11.1e}")
        worst = max(worst, far)
        for smoothing in SMOOTHINGS:
            totals, lines, touched = zip(*(bleu_differences(rows, smoothing) for rows in corpora), strict=True)
            cells = f"{max(totals):>11.1e} {max(lines):>10.1e} {sum(touched):>10,}"
            print(f"{references:>10} {'BLEU ' + smoothing:>10} {cells}", flush=True)
            worst = max(worst, *totals, *lines)
    yield f"our BLEU and chrF are sacreBLEU's within {MAX_DIFFERENCE:g}", float(worst <= MAX_DIFFERENCE), 1.0


def compare_published_scores(quick: bool) -> Iterator[Claim]:
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
            texts[pair] = read_lines(f"{stem}.ref.A.{target}.gz")
        translations = read_lines(f"{stem}.hyp.{system}.{target}.gz")
        for name in equal:
            metric, options = WMT22[name]
            equal[name] += (
                score(metric, translations, texts[pair], options=options).value == expected[pair, system, name]
            )
    print(f"\nWMT22, {len(systems)} systems with sacreBLEU {sacrebleu.__version__}: equal to the last digit")
    for name, count in equal.items():
        print(f"{name:>10} {count:>4} of {len(systems)}")
    yield "published scores that are equal, share", sum(equal.values()) / (len(equal) * len(systems)), 1.0


def compare_published_p_values(quick: bool) -> Iterator[Claim]:
    """WMT17: p-values of 15 systems against one, of two tests."""
    folder = DATA / "wmt17-ende-systems"
    head, *rows = (line.split("\t") for line in (folder / "expected-p-values.tsv").read_text().splitlines())
    rows = rows[:: 5 if quick else 1]
    references = read_lines(str(folder / "ref.de.gz"))
    names = [BASELINE, *(row[0] for row in rows)]
    systems = {name: read_lines(str(folder / f"hyp.{name}.de.gz")) for name in names}
    tests = {head[1]: ("bleu", "bs", 2000), head[2]: ("bleu", "ar", 10_000), head[3]: ("ter", "ar", 10_000)}
    p_values: dict[str, dict[str, float | None]] = {}
    for column, (metric, test, samples) in list(tests.items())[: 1 if quick else None]:
        options = MetricOptions("none")
        scores = run_paired_test([metric], systems, references, test=test, samples=samples, options=options)
        p_values[column] = {result.system: result.p for result in scores}
    print(f"\nWMT17 en-de, p-values against {BASELINE}: published and ours")
    print(f"{'system':>24} " + "".join(f"{column.removesuffix('_p'):>28}" for column in p_values))
    far = []
    for name, *published in rows:
        cells = []
        for column, value in zip(p_values, published, strict=False):
            ours = p_values[column][name]
            assert ours is not None
            far.append((abs(float(value) - ours), sampling_error(float(value), tests[column][2])))
            cells.append(f"{float(value):>18.5f} {ours:>9.5f}")
        print(f"{name:>24} " + "".join(cells))
    above = sum(difference > 0.01 for difference, _ in far)
    print(f"largest difference {max(far)[0]:.5f}; {above} of {len(far)} above 0.01")
    yield "published p-values within 0.01 or what drawing leaves open, share", share_within_error(far), 1.0


def sampling_error(p: float, samples: int) -> float:
    """Three standard errors of the difference between two p-values from this many samples each."""
    return 3 * sqrt(2 * p * (1 - p) / samples)


def share_within_error(far: Sequence[tuple[float, float]]) -> float:
    """The fraction of differences that are small, or within the sampling error."""
    return sum(difference <= max(0.01, error) for difference, error in far) / len(far)


def compare_published_alignments() -> Iterator[Claim]:
    """Alignment error rates of a public aligner's output."""
    folder, right = DATA / "gold-alignments", 0
    print("\nalignment error rates: published and ours")
    for pair, expected in AER.items():
        gold = [parse_gold(line, first=1) for line in read_lines(str(folder / f"{pair}.gold"))]
        links = [parse_links(line) for line in read_lines(str(folder / f"{pair}.awesome-align.out"))]
        agreement = measure_agreement(links, gold)
        right += abs(agreement.error_rate - expected) < 5e-6
        rates = f"precision {agreement.precision:.4f}  recall {agreement.recall:.4f}"
        print(f"{pair:>10} {expected:>9.5f} {agreement.error_rate:>9.5f}  {rates}")
    yield "published alignment error rates that are equal, share", right / len(AER), 1.0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer corpora and systems, the fast metrics")
    arguments = options.parse_args()
    header(__file__)
    claims: list[Claim] = []
    for part in (
        compare_arithmetic(100 if arguments.quick else 1000),
        compare_published_alignments(),
        compare_published_scores(arguments.quick),
        compare_published_p_values(arguments.quick),
    ):
        claims += list(part)
        print(f"({process_time():.0f} s of one core so far)", flush=True)
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
