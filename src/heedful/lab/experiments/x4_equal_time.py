"""X4: accuracy of three models after the same time of training.

Short Portuguese sentences are translated to English, word by word: a small vocabulary, and only pairs whose words it
has. Each model trains for the same time of the processor, not of the clock, so that other work on the machine does not
matter. The measure is log p of the words of unseen references.
"""

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

import torch

from heedful.embeddings.word2vec import split_words
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import FIRST, Pair, make_batch, make_recurrent, make_transformer, read_sample, train_model
from heedful.model.seq2seq import Seq2Seq

SAMPLE = "pt-en"
TIMED_STEPS = 10
MIN_GAIN = 0.1  # nats per word: two runs of one model that differ by some steps differ by less
TEST_ROWS = 50


def number_pairs(words: int, max_length: int) -> tuple[list[Pair], list[Pair]]:
    """Training and test pairs of short sentences whose words are among the most frequent of their side."""
    parts = {
        part: [[split_words(line) for line in side] for side in read_sample(SAMPLE, part)]
        for part in ("train", "valid", "test")
    }
    numbers = []
    for side in parts["train"]:
        counts = Counter(word for line in side for word in line)
        numbers.append({word: FIRST + number for number, (word, _) in enumerate(counts.most_common(words))})

    def convert(sides: Sequence[Sequence[list[str]]]) -> list[Pair]:
        return [
            ([numbers[0][word] for word in source], [numbers[1][word] for word in target])
            for source, target in zip(*sides, strict=True)
            if 0 < max(len(source), len(target)) <= max_length
            and all(word in numbers[0] for word in source)
            and all(word in numbers[1] for word in target)
        ]

    return convert(parts["train"]), convert(parts["valid"]) + convert(parts["test"])


def pick_pairs(count: int, draw: torch.Generator, *, pairs: Sequence[Pair]) -> list[Pair]:
    return [pairs[number] for number in torch.randint(len(pairs), (count,), generator=draw).tolist()]


def count_steps(model: Seq2Seq, pick: partial[list[Pair]], rows: int, seconds: float, seed: int) -> int:
    """How many steps this model makes in so much time of the processor."""
    train_model(model, pick, steps=2, rows=rows, peak=1e-3, seed=seed)  # also warms up
    start = time.process_time()
    train_model(model, pick, steps=TIMED_STEPS, rows=rows, peak=1e-3, seed=seed)
    return max(TIMED_STEPS, round(seconds * TIMED_STEPS / (time.process_time() - start)))


@torch.inference_mode()
def log_probs_per_word(model: Seq2Seq, pairs: Sequence[Pair]) -> list[float]:
    """For each pair, the mean log p of the target's words and of its end, given the words before."""
    means = []
    for first in range(0, len(pairs), TEST_ROWS):
        some_pairs = pairs[first : first + TEST_ROWS]
        batch = make_batch(some_pairs)
        decoded, _ = model.decoder(batch.inputs, model.decoder.start(model.encoder(*batch.source)))
        states = decoded.states.flatten(0, 1)[batch.target_positions]
        log_probs = model.decoder.project(states).log_softmax(-1).gather(1, batch.targets.unsqueeze(1)).squeeze(1)
        parts = log_probs.split([len(target) + 1 for _, target in some_pairs])
        means += [float(part.mean()) for part in parts]
    return means


def train_equally(
    lab: Lab, *, seconds: float, words: int, max_length: int, width: int, rows: int, attention: bool = True
) -> Findings:
    """Train for `seconds` each; with `attention=False`, all models are the one with a fixed vector."""
    train, test = number_pairs(words, max_length)
    pick = partial(pick_pairs, pairs=train)
    score = "bilinear" if attention else None
    models = {
        "fixed vector": make_recurrent(words, width, attention=None),
        "attention": make_recurrent(words, width, attention=score),
        "Transformer": make_transformer(words, width) if attention else make_recurrent(words, width, attention=None),
    }
    log_probs, steps = {}, {}
    for name, model in models.items():
        steps[name] = count_steps(model, pick, rows, seconds, lab.seed)
        train_model(model, pick, steps=steps[name], rows=rows, peak=5e-3, seed=lab.seed, report=lab.progress(name))
        log_probs[name] = log_probs_per_word(model, test)

    def gain(first: str, second: str) -> Estimate:
        return estimate_mean([one - other for one, other in zip(log_probs[first], log_probs[second], strict=True)])

    both = gain("Transformer", "fixed vector")
    over_vector, over_recurrence = gain("attention", "fixed vector"), gain("Transformer", "attention")
    checks = (
        Check(
            f"a Transformer is better than a fixed vector by {both} nats per word, more than {MIN_GAIN}",
            both.low > MIN_GAIN,
        ),
        Check(f"a recurrent model with attention is better than a fixed vector by {over_vector}", over_vector.low > 0),
        Check(
            f"a Transformer is better than a recurrent model with attention by {over_recurrence}",
            over_recurrence.low > 0,
        ),
    )
    means = {name: estimate_mean(each) for name, each in log_probs.items()}
    return Findings(
        ResultTable(("model", "steps", "log p per word"), tuple((name, steps[name], means[name]) for name in models)),
        Chart(
            f"After {seconds:g} seconds of training each",
            "model",
            "log p per word of unseen references (nats)",
            (Series("mean", tuple(means.items())),),
        ),
        checks,
        (f"{len(train):,} training pairs and {len(test):,} test pairs of at most {max_length} words.",),
    )


EXPERIMENT = Experiment(
    title="accuracy at equal time",
    claim="After the same time of training, attention is better than a fixed vector, and a Transformer is the best.",
    sizes={
        "quick": {"seconds": 8.0, "words": 500, "max_length": 8, "width": 64, "rows": 64},
        "default": {"seconds": 120.0, "words": 2000, "max_length": 12, "width": 128, "rows": 64},
        "long": {"seconds": 600.0, "words": 4000, "max_length": 16, "width": 256, "rows": 64},
    },
    function=train_equally,
    sabotage={"attention": False},
)
