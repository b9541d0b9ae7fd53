"""X7: texts of a language model by decoding method: greedy and beam search repeat themselves.

A small language model of English words continues the first words of sentences that it has not seen. The end token is
excluded, so that all texts are equally long. The unseen text, cut to the same length, shows how often people repeat
themselves.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from heedful.embeddings.word2vec import split_words
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Findings, ResultTable, Series, estimate_difference, estimate_mean
from heedful.lab.tasks import BOS, EOS, FIRST, MAX_POSITIONS, PAD, Pair, read_sample, train_model
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.contract import Memory
from heedful.nn.decoders import TransformerDecoder
from heedful.nn.encoders import Nothing
from heedful.nn.layers import Embed, TransformerLayerOptions, output_layer
from heedful.nn.positions import Sinusoidal
from heedful.search import Beam, DecodingLimits, Greedy, Sample

SAMPLE = "pt-en"
NGRAM = 3
MAX_EXCESS = 0.05  # of repeated n-grams under sampling, more than people have


def make_language_model(words: int, width: int) -> Seq2Seq:
    """A Transformer decoder without a source."""
    size = FIRST + words
    table = nn.Embedding(size, width)
    embed = Embed(table, positions=Sinusoidal(MAX_POSITIONS, width), scale_embeddings=True)
    options = TransformerLayerOptions(heads=4, feedforward_size=4 * width)
    decoder = TransformerDecoder(embed, output_layer(width, size, tied_to=table), 0, layers=2, options=options)
    return Seq2Seq(Nothing(), decoder)


def number_words(lines: Sequence[str], vocabulary: dict[str, int]) -> list[int]:
    """The known words of all lines as one text; FIRST separates lines."""
    return [
        number
        for line in lines
        for number in (FIRST, *(vocabulary[word] for word in split_words(line) if word in vocabulary))
    ]


def cut_pairs(count: int, draw: torch.Generator, *, text: Tensor, length: int) -> list[Pair]:
    """Random parts of the text, without sources."""
    starts = torch.randint(len(text) - length, (count,), generator=draw).tolist()
    return [([], text[start : start + length].tolist()) for start in starts]


def repeated_share(tokens: Sequence[int]) -> float:
    """The share of the n-grams of a text that occurred in it before."""
    ngrams = [tuple(tokens[start : start + NGRAM]) for start in range(len(tokens) - NGRAM + 1)]
    return 1 - len(set(ngrams)) / len(ngrams)


def measure_repetition(
    lab: Lab,
    *,
    words: int,
    width: int,
    steps: int,
    rows: int,
    texts: int,
    length: int,
    prefix: int,
    searched: bool = True,
) -> Findings:
    """Count repetitions by method; with `searched=False`, samples take the place of greedy and beam search."""
    train, test = (read_sample(SAMPLE, part)[1] for part in ("train", "test"))
    counts = Counter(word for line in train for word in split_words(line))
    vocabulary = {word: FIRST + 1 + number for number, (word, _) in enumerate(counts.most_common(words - 1))}
    text = torch.tensor(number_words(train, vocabulary))
    model = make_language_model(words, width)
    losses = train_model(
        model,
        partial(cut_pairs, text=text, length=length),
        steps=steps,
        rows=rows,
        peak=4e-3,
        seed=lab.seed,
        report=lab.progress("language model"),
    )
    unseen = number_words(test, vocabulary)
    prefixes = tuple(tuple(unseen[start : start + prefix]) for start in range(0, prefix * texts, prefix))
    sample = Sample(seed=lab.seed)
    methods: dict[str, Greedy | Beam | Sample] = {
        "greedy": Greedy() if searched else Sample(seed=lab.seed + 1),
        "beam 5": Beam(5) if searched else Sample(seed=lab.seed + 2),
        "top-k 10": Sample(top_k=10, seed=lab.seed),
        "top-p 0.9": Sample(top_p=0.9, seed=lab.seed),
        "temperature 0.7": Sample(temperature=0.7, seed=lab.seed),
        "sampling": sample,
    }
    memory = Memory(torch.zeros(texts, 0, 0), torch.zeros(texts, 0, dtype=torch.bool))
    limits = DecodingLimits(BOS, EOS, length, prefix=prefixes, suppress_tokens=(PAD, BOS, EOS))
    shares: dict[str, list[float]] = {}
    progress = lab.progress("texts")
    for done, (name, method) in enumerate(methods.items(), 1):
        found = [result.best.tokens for result in method(model.decoder, memory, limits)]
        shares[name] = [repeated_share(tokens) for tokens in found]
        progress(done, len(methods))
    shares["people"] = [repeated_share(unseen[start : start + length]) for start in range(0, length * texts, length)]
    repeated = {name: estimate_mean(each) for name, each in shares.items()}
    checks = [
        Check(f"{name} repeats more than sampling, by {gap}", gap.low > 0)
        for name in ("greedy", "beam 5")
        for gap in [estimate_mean([one - other for one, other in zip(shares[name], shares["sampling"], strict=True)])]
    ]
    excess = estimate_difference(repeated["sampling"], repeated["people"])
    checks.append(
        Check(f"sampling repeats hardly more than people, by {excess}, at most {MAX_EXCESS}", excess.high <= MAX_EXCESS)
    )
    return Findings(
        ResultTable(("method", f"repeated {NGRAM}-grams"), tuple(repeated.items())),
        Chart(
            f"Repeated {NGRAM}-grams in texts of {length} words",
            "method",
            "share of repeated n-grams",
            (Series("mean", tuple(repeated.items())),),
        ),
        tuple(checks),
        (f"The loss per word fell to {sum(losses[-10:]) / 10:.2f} nats.",),
    )


EXPERIMENT = Experiment(
    title="repetition by decoding method",
    claim="Texts of a language model repeat themselves under greedy and beam search, and hardly under sampling.",
    sizes={
        "quick": {"words": 600, "width": 64, "steps": 150, "rows": 16, "texts": 40, "length": 40, "prefix": 3},
        "default": {"words": 4000, "width": 128, "steps": 1000, "rows": 32, "texts": 200, "length": 80, "prefix": 5},
    },
    function=measure_repetition,
    sabotage={"searched": False},
)
