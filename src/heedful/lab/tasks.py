"""Small tasks that experiments learn in seconds, the models that learn them, and the text that comes with heedful.

A task makes pairs of token lists from a random generator. Tokens from FIRST on are words; the others are special.
"""

from collections.abc import Callable, Sequence

from heedful.errors import require

require("torch", extra="train", whose="heedful lab")

import torch  # noqa: E402  # after the message that says how to install it
from torch import nn  # noqa: E402

from heedful.data.batch import Batch, collate, pad_rows  # noqa: E402
from heedful.model.seq2seq import Seq2Seq  # noqa: E402
from heedful.nn.attention import SCORES, Attention, Normalizer  # noqa: E402
from heedful.nn.decoders import RecurrentDecoder, TransformerDecoder  # noqa: E402
from heedful.nn.encoders import Bottleneck, RecurrentEncoder, TransformerEncoder  # noqa: E402
from heedful.nn.layers import Embed, TransformerLayerOptions, initialize, output_layer  # noqa: E402
from heedful.nn.positions import POSITIONS  # noqa: E402
from heedful.samples import read_part, sample_folder  # noqa: E402
from heedful.search import DecodingLimits, Greedy  # noqa: E402
from heedful.training.schedules import linear  # noqa: E402

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
MAX_POSITIONS = 256
Pair = tuple[list[int], list[int]]
MakePairs = Callable[[int, torch.Generator], list[Pair]]  # how many, generator
ReportSteps = Callable[[int, int], None]  # done, total


# --------------------------------------------------------------------------------------------------------------- tasks


def copy_pairs(count: int, draw: torch.Generator, *, min_length: int, max_length: int, words: int) -> list[Pair]:
    """Random words, and the same words again."""
    lengths = torch.randint(min_length, max_length + 1, (count,), generator=draw).tolist()
    sources = [torch.randint(FIRST, FIRST + words, (length,), generator=draw).tolist() for length in lengths]
    return [(source, list(source)) for source in sources]


def reverse_pairs(count: int, draw: torch.Generator, *, min_length: int, max_length: int, words: int) -> list[Pair]:
    """Random words, and the same words from the last to the first."""
    pairs = copy_pairs(count, draw, min_length=min_length, max_length=max_length, words=words)
    return [(source, target[::-1]) for source, target in pairs]


def noisy_pairs(
    count: int, draw: torch.Generator, *, min_length: int, max_length: int, words: int, noise: float
) -> list[Pair]:
    """Copies in which a share `noise` of the target's words is random."""
    pairs = copy_pairs(count, draw, min_length=min_length, max_length=max_length, words=words)

    def replace_words(target: list[int]) -> list[int]:
        others = torch.randint(FIRST, FIRST + words, (len(target),), generator=draw).tolist()
        is_noise = (torch.rand(len(target), generator=draw) < noise).tolist()
        return [other if noisy else word for word, other, noisy in zip(target, others, is_noise, strict=True)]

    return [(source, replace_words(target)) for source, target in pairs]


def joined_pairs(count: int, draw: torch.Generator, *, joined: Sequence[int], length: int, words: int) -> list[Pair]:
    """Copies of `joined` sentences of `length` random words each; of several numbers, each pair draws one."""
    choices = torch.randint(len(joined), (count,), generator=draw).tolist()
    lengths = [joined[choice] * length for choice in choices]
    sources = [torch.randint(FIRST, FIRST + words, (size,), generator=draw).tolist() for size in lengths]
    return [(source, list(source)) for source in sources]


def read_sample(pair: str, part: str) -> tuple[list[str], list[str]]:
    """The lines of a corpus that comes with heedful: sources and targets of train, valid or test."""
    packed = sample_folder(pair)
    source, target = (read_part(packed, part, language).decode().splitlines() for language in pair.split("-"))
    return source, target


# -------------------------------------------------------------------------------------------------------------- models


def make_recurrent(
    words: int,
    width: int,
    *,
    attention: str | None = "bilinear",
    normalizer: str | Normalizer = "soft",
    cell: str = "gru",
    reset: str = "after",
    bidirectional: bool = True,
) -> Seq2Seq:
    """A recurrent model with this score of attention; None: one vector for the source, the decoder's first state."""
    size = FIRST + words
    encoder = RecurrentEncoder(
        Embed(nn.Embedding(size, width)), width, cell=cell, reset=reset, bidirectional=bidirectional
    )
    embed = Embed(nn.Embedding(size, width))
    if attention is None:
        bottleneck = Bottleneck(encoder)
        decoder = RecurrentDecoder(
            embed, output_layer(width, size), width, width, None, cell=cell, reset=reset, initial_state="last"
        )
        return Seq2Seq(bottleneck, decoder)
    attend = Attention(SCORES[attention](width, width), width, normalizer)
    decoder = RecurrentDecoder(embed, output_layer(width, size), width, width, attend, cell=cell, reset=reset)
    return Seq2Seq(encoder, decoder)


def make_transformer(
    words: int,
    width: int,
    *,
    heads: int = 4,
    layers: int = 2,
    positions: str | None = "sinusoidal",
    causal: bool = True,
    label_smoothing: float = 0.0,
    max_positions: int = MAX_POSITIONS,
) -> Seq2Seq:
    """A Transformer whose embeddings and output layer share one table."""
    size = FIRST + words
    table = nn.Embedding(size, width)
    places = None if positions is None else POSITIONS[positions](max_positions, width)
    embed = Embed(table, positions=places, scale_embeddings=True)
    options = TransformerLayerOptions(heads=heads, feedforward_size=4 * width)
    return Seq2Seq(
        TransformerEncoder(embed, layers=layers, options=options),
        TransformerDecoder(
            embed, output_layer(width, size, tied_to=table), width, layers=layers, options=options, causal=causal
        ),
        label_smoothing=label_smoothing,
    )


# ------------------------------------------------------------------------------------------------ training and answers


def make_batch(pairs: Sequence[Pair]) -> Batch:
    """A batch of pairs; language models have empty sources, without an end token."""
    return collate(pairs, bos=BOS, eos=EOS, pad=PAD, end_source=any(source for source, _ in pairs))


def train_model(
    model: Seq2Seq,
    make_pairs: MakePairs,
    *,
    steps: int,
    rows: int,
    peak: float,
    seed: int,
    clip_norm: float = 1.0,
    report: ReportSteps | None = None,
) -> list[float]:
    """Train in place with new pairs in every step; returns the loss per token of each step.

    The learning rate rises to `peak` in a tenth of the steps, then falls to 0.
    """
    torch.manual_seed(seed)
    initialize(model)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    draw = torch.Generator().manual_seed(seed)
    losses = []
    model.train()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = linear(step, peak=peak, warmup_steps=max(1, steps // 10), steps=steps + 1)
        loss = model(make_batch(make_pairs(rows, draw)))
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        losses.append(float(loss.nll / loss.tokens))
        if report:
            report(step, steps)
    model.eval()
    return losses


def draw_test_pairs(make_pairs: MakePairs, count: int, seed: int) -> list[Pair]:
    """Pairs that are drawn with another generator than those of training."""
    return make_pairs(count, torch.Generator().manual_seed(1_000_000 + seed))


@torch.inference_mode()
def answer_greedily(model: Seq2Seq, pairs: Sequence[Pair]) -> list[tuple[int, ...]]:
    """The model's answers to the sources, at most a few words longer than the targets."""
    memory = model.encoder(*pad_rows([[*source, EOS] for source, _ in pairs], PAD))
    max_lengths = tuple(len(target) + 5 for _, target in pairs)
    results = Greedy()(model.decoder, memory, DecodingLimits(BOS, EOS, max_lengths))
    return [result.best.tokens for result in results]


def share_right(answers: Sequence[Sequence[int]], pairs: Sequence[Pair]) -> list[float]:
    """For each pair, the share of the words of the target that the answer has at the same place."""
    return [
        sum(word == wanted for word, wanted in zip(answer, target, strict=False)) / len(target)
        for answer, (_, target) in zip(answers, pairs, strict=True)
    ]
