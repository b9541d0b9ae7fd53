"""Is what the lectures mention besides translation as good here as in the libraries of each field?

- metrics: METEOR (without synonyms, with stems) and NIST against NLTK, CIDEr against pycocoevalcap, on random corpora

    python benchmarks/related_models.py [--quick] [--only PART ...]

Needs `pip install nltk pycocoevalcap snowballstemmer`. A part is skipped if one of its packages
is missing. --quick: fewer corpora.
"""

import argparse
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from random import Random
from time import process_time

from heedful.metrics.score import MetricOptions, score, sentence_scores
from report import header, skip, verdict

Claim = tuple[str, float, float]
MAX_DIFFERENCE = 1e-9  # of scores up to 1,000
WORDS = {
    "english": "the a cat cats dog dogs sat sitting sit on mat mats is was run runs running , .",
    "russian": "кот кота коты лежит лежал лежали на лавке лавку и собака собаки . ,",
}


# ------------------------------------------------------------------------------------------------------- metrics


def random_line(random: Random, words: list[str], lengths: tuple[int, ...]) -> str:
    return " ".join(random.choices(words, k=random.choice(lengths)))


def compare_metrics(quick: bool) -> Iterator[Claim]:
    """The largest difference to NLTK and pycocoevalcap over random corpora."""
    from nltk.translate.meteor_score import meteor_score
    from nltk.translate.nist_score import corpus_nist
    from pycocoevalcap.cider.cider import Cider
    from snowballstemmer import stemmer as snowball_stemmer

    class Stemmer:
        def __init__(self, language: str) -> None:
            self.stem = snowball_stemmer(language).stemWord

    class NoSynonyms:
        def synsets(self, _word: str) -> list[str]:
            return []

    random, num_corpora = Random(1), 50 if quick else 500
    largest = {"METEOR": 0.0, "NIST": 0.0, "CIDEr": 0.0}
    for _ in range(num_corpora):
        language = random.choice(list(WORDS))
        words = WORDS[language].split()
        num_lines, num_references = random.randint(2, 8), random.choice((1, 2, 5))
        hypotheses = [random_line(random, words, (0, 1, 2, 5, 8, 13)) for _ in range(num_lines - 1)]
        hypotheses.append(random_line(random, words, (8, 13)))  # NLTK's NIST needs one 5-gram
        references = [
            [random_line(random, words, (1, 2, 5, 8, 13)) for _ in range(num_lines)] for _ in range(num_references)
        ]
        rows = list(zip(*references, strict=True))
        options = MetricOptions("none", stemmer=language)
        meteors = sentence_scores("meteor", hypotheses, references, options=options)
        differences = {
            "METEOR": max(
                abs(
                    ours
                    - 100
                    * meteor_score(
                        [line.split() for line in row],
                        hypothesis.split(),
                        stemmer=Stemmer(language),
                        wordnet=NoSynonyms(),
                    )
                )
                for ours, hypothesis, row in zip(meteors, hypotheses, rows, strict=True)
            ),
            "NIST": abs(
                score("nist", hypotheses, references, options=options).value
                - corpus_nist(
                    [[line.split() for line in row] for row in rows], [hypothesis.split() for hypothesis in hypotheses]
                )
            ),
            "CIDEr": abs(
                score("cider", hypotheses, references, options=options).value
                - 100
                * Cider().compute_score(
                    {number: list(row) for number, row in enumerate(rows)},
                    {number: [hypothesis] for number, hypothesis in enumerate(hypotheses)},
                )[0]
            ),
        }
        largest = {name: max(value, differences[name]) for name, value in largest.items()}
    print(f"\n{num_corpora} random corpora, 1, 2 or 5 references, English and Russian: the largest differences")
    for name, value in largest.items():
        print(f"{name:>8} {value:.1e}")
        yield f"{name} equals the library's within {MAX_DIFFERENCE:g}", float(value <= MAX_DIFFERENCE), 1.0


PARTS = {"metrics": (compare_metrics, ("nltk", "pycocoevalcap", "snowballstemmer"))}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="the short form")
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="the parts to run")
    arguments = options.parse_args()
    header(__file__)
    claims: list[Claim] = []
    for name in arguments.only:
        compare, packages = PARTS[name]
        if missing := [package for package in packages if find_spec(package) is None]:
            skip(name, f"needs {', '.join(missing)}")
            continue
        claims += list(compare(arguments.quick))
        print(f"({process_time():.0f} s of one core so far)", flush=True)
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
