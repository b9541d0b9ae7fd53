"""X13: words with the same contexts get similar vectors.

Synonyms whose contexts are known to be the same are made: every occurrence of a frequent word becomes, at random, one
of two new words. Word vectors are learned from the text that has them, and the two halves of each word are compared.
"""

import random
from collections import Counter
from collections.abc import Sequence

from heedful.embeddings.vectors import WordVectors
from heedful.embeddings.word2vec import WordOptions, WordsProgress, split_words, train_vectors
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Findings, ResultTable, Series, estimate_mean, estimate_share
from heedful.lab.tasks import read_sample

SAMPLE = "pt-en"
HALVES = ("_a", "_b")


def split_synonyms(lines: Sequence[list[str]], synonyms: set[str], draw: random.Random) -> list[list[str]]:
    """The text with one of two new words for every occurrence of a word of `synonyms`."""
    return [[word + draw.choice(HALVES) if word in synonyms else word for word in line] for line in lines]


def compare_synonyms(
    lab: Lab, *, lines: int, synonyms: int, width: int, epochs: int, keep_contexts: bool = True
) -> Findings:
    """Compare the cosines of synonyms with those of other pairs; without contexts, all words change their places."""
    draw = random.Random(lab.seed)
    text = [split_words(line) for line in read_sample(SAMPLE, "train")[1][:lines]]
    frequent = [word for word, _ in Counter(word for line in text for word in line).most_common(4 * synonyms)]
    chosen = sorted(draw.sample(frequent, synonyms))
    text = split_synonyms(text, set(chosen), draw)
    if not keep_contexts:
        words = [word for line in text for word in line]
        draw.shuffle(words)
        places = iter(words)
        text = [[next(places) for _ in line] for line in text]
    progress = lab.progress("word vectors")

    def report(step: WordsProgress) -> None:
        progress(step.words, step.total_words)

    options = WordOptions(width=width, epochs=epochs, learning_rate=0.05, seed=lab.seed)
    vectors = train_vectors(lambda: (" ".join(line) for line in text), options, report)
    same, other, found = measure_cosines(vectors, chosen, draw)
    cosine_same, cosine_other = estimate_mean(same), estimate_mean(other)
    more = estimate_mean([one - another for one, another in zip(same, other, strict=True)])
    nearest = estimate_share(found, len(chosen))
    chance = 1 / len(vectors.words)
    checks = (
        Check(f"the cosine of two words with the same contexts is larger by {more} than that of others", more.low > 0),
        Check(
            f"for {nearest} of the words, the nearest of all {len(vectors.words):,} words is the other half",
            nearest.low > chance,
        ),
    )
    shown = {"the same contexts": cosine_same, "other pairs": cosine_other}
    return Findings(
        ResultTable(("pairs of words", "cosine"), tuple(shown.items())),
        Chart("Cosines of word vectors", "pairs of words", "cosine", (Series("mean", tuple(shown.items())),)),
        checks,
    )


def measure_cosines(
    vectors: WordVectors, chosen: Sequence[str], draw: random.Random
) -> tuple[list[float], list[float], int]:
    """Cosines of the halves of each word, of a half and that of another word, and how often the nearest is the half."""
    same, other, found = [], [], 0
    for word in chosen:
        first, second = (vectors.directions[vectors.row_of(word + half)] for half in HALVES)
        stranger = draw.choice([each for each in chosen if each != word])
        same.append(float(first @ second))
        other.append(float(first @ vectors.directions[vectors.row_of(stranger + HALVES[1])]))
        found += vectors.near(word + HALVES[0], 1)[0][0] == word + HALVES[1]
    return same, other, found


EXPERIMENT = Experiment(
    title="similar contexts, similar vectors",
    claim="Words that occur in the same contexts get similar vectors.",
    sizes={
        "quick": {"lines": 20_000, "synonyms": 40, "width": 32, "epochs": 3},
        "default": {"lines": 100_000, "synonyms": 100, "width": 100, "epochs": 10},
    },
    function=compare_synonyms,
    sabotage={"keep_contexts": False},
)
