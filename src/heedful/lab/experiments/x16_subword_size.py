"""X16: the number of subword pieces: long texts of frequent pieces, or short texts of rare ones."""

from collections import Counter
from collections.abc import Sequence

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean, estimate_share
from heedful.lab.tasks import read_sample
from heedful.text.tokenizer import train

SAMPLE = "pt-en"
RARE = 20  # occurrences in the training text: pieces with fewer are rare


def vary_size(lab: Lab, *, sizes: Sequence[int], lines: int, tests: int) -> Findings:
    """Train one tokenizer for each size, and count pieces in unseen text."""
    texts = read_sample(SAMPLE, "train")[1][:lines]
    unseen = read_sample(SAMPLE, "test")[1][:tests]
    progress = lab.progress("tokenizers")
    lengths: list[list[float]] = []  # pieces per word of each unseen line, by size
    rare: list[Estimate] = []  # of the pieces of the vocabulary
    actual: list[int] = []  # small texts have fewer pieces than a large vocabulary could hold
    for done, size in enumerate(sizes, 1):
        tokenizer = train("bpe", texts, size, byte_fallback=False)
        actual.append(tokenizer.size)
        counts = Counter(piece for row in tokenizer.encode(texts) for piece in row)
        lengths.append(
            [len(row) / len(line.split()) for row, line in zip(tokenizer.encode(unseen), unseen, strict=True)]
        )
        rare.append(estimate_share(tokenizer.size - sum(count >= RARE for count in counts.values()), tokenizer.size))
        progress(done, len(sizes))
    shorter = estimate_mean([few - many for few, many in zip(lengths[0], lengths[-1], strict=True)])
    checks = (
        Check(
            f"with {actual[0]:,} pieces, texts have {shorter} more pieces per word than with {actual[-1]:,}",
            shorter.low > 0,
        ),
        Check(
            f"with {actual[-1]:,} pieces, more of them are rare (fewer than {RARE} times in the training text): "
            f"{rare[-1]}, with {actual[0]:,} pieces {rare[0]}",
            rare[-1].low > rare[0].high,
        ),
    )
    per_word = [estimate_mean(each) for each in lengths]
    return Findings(
        ResultTable(
            ("pieces", "pieces per word", "rare pieces"),
            tuple(zip(actual, per_word, rare, strict=True)),
        ),
        Chart(
            "Length of texts by the size of the vocabulary",
            "pieces in the vocabulary",
            "pieces per word, share of rare pieces",
            (
                Series("pieces per word", tuple(zip(actual, per_word, strict=True))),
                Series("rare pieces", tuple(zip(actual, rare, strict=True))),
            ),
            log_x=True,
        ),
        checks,
    )


EXPERIMENT = Experiment(
    title="the size of a subword vocabulary",
    claim="A smaller subword vocabulary makes longer texts of more frequent pieces.",
    sizes={
        "quick": {"sizes": (200, 800, 3200), "lines": 10_000, "tests": 300},
        "default": {"sizes": (200, 400, 800, 1600, 3200), "lines": 40_000, "tests": 500},
    },
    function=vary_size,
    sabotage={"sizes": (800, 800)},
)
