"""Small models of every kind, made from the tables themselves; used by the law tests and by benchmarks/laws.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch, collate, pad_rows
from heedful.model.ensemble import EnsembleEncoder
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.attention import COMBINE_MODES, NORMALIZERS, SCORES, Attention, MultiHead
from heedful.nn.cells import CELLS
from heedful.nn.decoders import CTCDecoder, LabelDecoder, RecurrentDecoder, TransformerDecoder
from heedful.nn.decoders.labels import POOLING_KINDS
from heedful.nn.decoders.rnn import QUERY_FROM
from heedful.nn.encoders import (
    Bottleneck,
    Frames,
    Graphs,
    Nothing,
    Patches,
    Pyramid,
    RecurrentEncoder,
    TransformerEncoder,
)
from heedful.nn.encoders.frames import FrameEmbed, FrameStem
from heedful.nn.encoders.graph import GraphShape
from heedful.nn.encoders.patches import STEMS, PatchEmbed, PatchGrid
from heedful.nn.layers import ACTIVATIONS, NORMS, Embed, TransformerLayerOptions, output_layer
from heedful.nn.positions import POSITIONS, Fixed, Sinusoidal
from heedful.search import LENGTH_RULES, SEARCHES, STOPPING_RULES, Beam, Greedy, Sample

V, WIDTH = 11, 8
PAD, BOS, EOS = 0, 1, 2
GRID = PatchGrid(2, 3, 2)  # small pictures


def embed(vocab_size: int = V, *, positions: str | None = None, scale_embeddings: bool = False) -> Embed:
    table, places = nn.Embedding(vocab_size, WIDTH), None
    if positions == "fixed":
        places = Fixed(40, WIDTH, torch.randn(40, WIDTH))
    elif positions is not None:
        places = POSITIONS[positions](40, WIDTH)
    return Embed(table, positions=places, scale_embeddings=scale_embeddings)


def transformer_encoder(norm: str, positions: str | None, activation: str, score: str, normalizer: str, combine: str):
    options = TransformerLayerOptions(
        heads=2,
        feedforward_size=12,
        norm=norm,
        activation=activation,
        score=score,
        normalizer=normalizer,
        combine=combine,
    )
    words = embed(positions=positions, scale_embeddings=positions is not None)
    return TransformerEncoder(words, layers=2, options=options)


def patches(stem: str, layers: int, pool: bool) -> Patches:
    options = TransformerLayerOptions(heads=2, feedforward_size=12)
    return Patches(PatchEmbed(GRID, WIDTH, stem=stem), layers=layers, pool=pool, options=options)


BANDS = 5  # of a small spectrogram


def frames(kind: str, stride: int, layers: int) -> Frames:
    stem, slots = FrameStem(BANDS, WIDTH, stride), FrameEmbed(WIDTH, Sinusoidal(40, WIDTH))
    if kind == "transformer":
        options = TransformerLayerOptions(heads=2, feedforward_size=12)
        return Frames(stem, TransformerEncoder(slots, layers=layers, options=options))
    return Frames(stem, (Pyramid if kind == "pyramid" else RecurrentEncoder)(slots, WIDTH, cell="gru", layers=layers))


FEATURES, NEIGHBORS = 5, 3  # of the nodes of a small graph


def graphs(combine: str, layers: int) -> Graphs:
    return Graphs(GraphShape(FEATURES, NEIGHBORS, WIDTH), layers=layers, heads=2, combine=combine)


# Options that do not matter to each other take turns, so that every one is run and the product stays small.
SELF_NORMALIZERS = [normalizer for normalizer in NORMALIZERS if normalizer != "sampled"]
SELF_SCORES = [score for score in SCORES if not SCORES[score].has_state]

ENCODER_CASES: dict[str, Callable[[], nn.Module]] = {
    **{
        f"{cell}-{'bi' if two else 'uni'}-{layers}": lambda cell=cell, two=two, layers=layers: RecurrentEncoder(
            embed(), WIDTH, cell=cell, bidirectional=two, layers=layers
        )
        for (cell, two), layers in zip(
            itertools.product(CELLS, (False, True)), itertools.cycle((1, 2, 2, 1)), strict=False
        )
    },
    "gru-before-2": lambda: RecurrentEncoder(embed(), WIDTH, cell="gru", reset="before", layers=2),
    **{
        f"bottleneck-{'bi' if two else 'uni'}": lambda two=two: Bottleneck(
            RecurrentEncoder(embed(), WIDTH, cell="gru", bidirectional=two)
        )
        for two in (False, True)
    },
    **{
        "-".join(("transformer", *map(str, options))): lambda options=options: transformer_encoder(*options)
        for options in [
            ("pre", "sinusoidal", "relu", "scaled_dot", "soft", "concat"),
            ("post", "sinusoidal", "gelu", "scaled_dot", "soft", "average"),
            *zip(
                itertools.cycle(NORMS),
                (*POSITIONS, None),
                itertools.cycle(ACTIVATIONS),
                SELF_SCORES,
                itertools.cycle(SELF_NORMALIZERS),
                itertools.cycle(COMBINE_MODES),
                strict=False,
            ),
        ]
    },
    "nothing": Nothing,
    **{
        f"patches-{stem}-{layers}{'-pool' if pool else ''}": lambda options=(stem, layers, pool): patches(*options)
        for stem, layers, pool in zip(itertools.cycle(STEMS), (1, 0, 0), (False, False, True), strict=False)
    },
    **{
        f"frames-{kind}-{stride}": lambda options=(kind, stride, layers): frames(*options)
        for kind, stride, layers in (("transformer", 4, 1), ("recurrent", 3, 1), ("pyramid", 2, 2))
    },
    **{
        f"graph-{combine}-{layers}": lambda options=(combine, layers): graphs(*options)
        for combine, layers in zip(COMBINE_MODES, (2, 1), strict=True)
    },
}


def source_tensors(encoder: nn.Module, rows: list[list[int]], *, other_padding: bool = False) -> tuple[Tensor, Tensor]:
    """Rows of tokens as a source of this encoder: tokens, nothing, or a patch, a node or some frames for each token.

    `other_padding` changes what must not matter: the content of the padding and, for tokens, its size.
    """
    tokens, mask = pad_rows(rows, PAD)
    if isinstance(encoder, EnsembleEncoder):
        encoder = next(iter(encoder.encoders))
    if isinstance(encoder, Nothing):
        return tokens[:, :0], mask[:, :0]
    if isinstance(encoder, Frames):  # `reduction` frames for each token but the last, which has one
        reduction = encoder.reduction
        more = 3 * reduction + 1 if other_padding else 0
        table = torch.rand(V, reduction, BANDS, dtype=torch.double, generator=torch.Generator().manual_seed(1))
        lengths = torch.tensor([reduction * (len(row) - 1) + 1 for row in rows])
        spectrogram = nn.functional.pad(table[tokens].flatten(1, 2), (0, 0, 0, more), value=0.3)
        mask = torch.arange(int(lengths.max()) + more) < lengths.unsqueeze(1)
        return spectrogram[:, : mask.size(1)], mask
    more = GRID.slots - tokens.size(1) if isinstance(encoder, Patches) else 3 if other_padding else 0
    mask = nn.functional.pad(mask, (0, more))
    tokens = nn.functional.pad(tokens, (0, more)).masked_fill(~mask, PAD + 9 if other_padding else PAD)
    if isinstance(encoder, Graphs):
        features = torch.rand(V, FEATURES, dtype=torch.double, generator=torch.Generator().manual_seed(1))[tokens]
        return torch.cat([features, chain_neighbors(mask, other_padding=other_padding)], -1), mask
    if not isinstance(encoder, Patches):
        return tokens, mask
    pixels = torch.rand(V, GRID.features, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    return pixels[tokens], mask


def chain_neighbors(mask: Tensor, *, other_padding: bool) -> Tensor:
    """[B, S, K]: the neighbors of a real node are the two nodes before it; padding may have any.

    Nodes with equal neighbors could have equal vectors, and which of two equals hard attention picks is not defined.
    """
    slots = torch.arange(mask.size(1)).expand(mask.shape)
    neighbors = torch.stack([slots, torch.zeros_like(slots), (slots - 1).clamp(min=0)], -1).double()
    return neighbors.masked_fill(~mask.unsqueeze(-1), 2.0 if other_padding else 0.0)


def batch_for(encoder: nn.Module, pairs: list[tuple[list[int], list[int]]]) -> Batch:
    """Pairs of token lists as a batch of this encoder."""
    sources = [[*source, EOS] for source, _ in pairs]
    return replace(collate(pairs, bos=BOS, eos=EOS, pad=PAD), source=source_tensors(encoder, sources))


def attention(heads: str, score: str, normalizer: str) -> Attention | MultiHead | None:
    if heads == "none":
        return None
    if heads == "single":
        return Attention(SCORES[score](WIDTH, WIDTH), WIDTH, normalizer)
    small = SCORES[score](WIDTH // 2, WIDTH // 2)
    tie = heads == "tied"
    combine = "concat" if tie else heads
    return MultiHead(WIDTH, 2, WIDTH, score=small, normalizer=normalizer, combine=combine, tie_keys_values=tie)


HEADS = ("none", "single", *COMBINE_MODES, "tied")

RECURRENT_CASES = {
    f"{cell}-{query_from}{'-feeds' if input_feeding else ''}-{layers}": {
        "cell": cell,
        "query_from": query_from,
        "input_feeding": input_feeding,
        "layers": layers,
        "initial_state": initial_state,
        "bridge": bridge,
        "gated_context": gated_context,
    }
    for (cell, query_from, input_feeding), (layers, initial_state, bridge), gated_context in zip(
        itertools.product(CELLS, QUERY_FROM, (False, True)),
        itertools.cycle(
            [(1, "mean", True), (2, "last", False), (1, "zero", True), (2, "last", True), (1, "mean", False)]
        ),
        itertools.cycle((False, True, True)),
        strict=False,
    )
}
RECURRENT_CASES["gru-before-previous-2"] = {"cell": "gru", "reset": "before", "query_from": "previous", "layers": 2}
# The norm, the positions and the activation of a Transformer decoder. None has no positions: equal tokens would then be
# equal slots, and which of two equals hard attention picks is not defined.
TRANSFORMER_CASES = {
    f"transformer-{norm}-{positions}": (norm, positions, activation)
    for norm, positions, activation in zip(
        itertools.cycle(NORMS), POSITIONS, itertools.cycle(ACTIVATIONS), strict=False
    )
}
CTC_CASES = {"ctc": 1, "ctc-upsample": 2}
LABEL_CASES = {f"labels-{pooling}": pooling for pooling in POOLING_KINDS}
DECODER_CASES = (*RECURRENT_CASES, *TRANSFORMER_CASES, *CTC_CASES, *LABEL_CASES)


def decoder(
    kind: str, heads: str, score: str, normalizer: str, vocab_size: int = V, memory_width: int = WIDTH
) -> nn.Module:
    output = output_layer(WIDTH, vocab_size, bias=True)
    if kind in CTC_CASES:
        return CTCDecoder(output, WIDTH, upsample=CTC_CASES[kind], bos=BOS, eos=EOS)
    if kind in LABEL_CASES:
        return LabelDecoder(output, memory_width, pooling=LABEL_CASES[kind], special=(PAD, BOS, EOS), eos=EOS)
    if kind in RECURRENT_CASES:
        options = RECURRENT_CASES[kind] | ({"gated_context": False} if heads == "none" else {})
        words = embed(vocab_size)
        return RecurrentDecoder(words, output, WIDTH, memory_width, attention(heads, score, normalizer), **options)
    norm, positions, activation = TRANSFORMER_CASES[kind]
    words = embed(vocab_size, positions=positions, scale_embeddings=True)
    num_heads, combine = (1, "concat") if heads == "single" else (2, heads)
    options = TransformerLayerOptions(
        heads=num_heads,
        feedforward_size=12,
        norm=norm,
        activation=activation,
        score=score,
        normalizer=normalizer,
        combine=combine,
    )
    return TransformerDecoder(words, output, memory_width, layers=2, options=options)


SEARCH_CASES = {
    "greedy": Greedy(),
    "sample": Sample(temperature=0.8, top_k=7, top_p=0.95, seed=3),
    **{
        f"beam-{stopping}-{length}": Beam(size=3, num_best=2, length_rule=length, stopping=stopping)
        for stopping, length in zip(STOPPING_RULES, itertools.cycle(LENGTH_RULES), strict=False)
    },
    "beam-1": Beam(size=1, length_rule="none"),
    "beam-wide": Beam(size=7, num_best=7, length_rule="gnmt", length_penalty=0.6),
}
assert {type(search) for search in SEARCH_CASES.values()} == set(SEARCHES.values())


@dataclass(frozen=True)
class Case:
    """One model and one search."""

    encoder: str
    decoder: str
    heads: str
    score: str
    normalizer: str
    search: str

    @property
    def exists(self) -> bool:
        """False for what cannot be.

        Some scores need a recurrent decoder, a Transformer needs attention, a recurrent decoder without a source has
        none, and neither has CTC. Labels have their own attention.
        """
        recurrent, from_slots = self.decoder in RECURRENT_CASES, self.decoder in {**CTC_CASES, **LABEL_CASES}
        if from_slots and (
            self.encoder == "nothing" or self.encoder.startswith("bottleneck") or "pool" in self.encoder
        ):
            return False  # no slot, or one: no law could see a difference
        if from_slots or self.heads == "none":  # the score and normalizer do not matter, so one of each will do
            is_plain = self.heads == "none" and self.score == "dot" and self.normalizer == "soft"
            return (recurrent or from_slots) and is_plain
        if recurrent and self.encoder == "nothing":
            return False
        if self.heads == "tied" and not recurrent:
            return False
        return recurrent or (not SCORES[self.score].has_state and self.normalizer in SELF_NORMALIZERS)

    def __str__(self) -> str:
        return "/".join((self.encoder, self.decoder, self.heads, self.score, self.normalizer, self.search))

    def model(self) -> Seq2Seq:
        """The model, in double precision, with weights that are random but large enough to matter."""
        torch.manual_seed(len(str(self)) + sum(map(ord, str(self))))
        encoder = ENCODER_CASES[self.encoder]()
        options = (self.decoder, self.heads, self.score, self.normalizer)
        model = Seq2Seq(encoder, decoder(*options, memory_width=encoder.width)).double()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
        return model.eval()


FACTORS: tuple[Sequence[str], ...] = (
    tuple(ENCODER_CASES),
    DECODER_CASES,
    HEADS,
    tuple(SCORES),
    tuple(NORMALIZERS),
    tuple(SEARCH_CASES),
)


def every_case() -> Iterator[Case]:
    """The full product of what exists."""
    return (case for values in itertools.product(*FACTORS) if (case := Case(*values)).exists)


@cache
def pairwise() -> list[Case]:
    """A covering array: every pair of values of every two factors that can meet does meet, in few cases (greedily)."""
    everything = list(every_case())
    values = [(factor, value) for factor, choices in enumerate(FACTORS) for value in choices]
    number = {value: at for at, value in enumerate(values)}
    rows = torch.tensor([[number[value] for value in enumerate(vars(case).values())] for case in everything])
    factors = itertools.combinations(range(len(FACTORS)), 2)
    pairs = torch.stack([rows[:, i] * len(values) + rows[:, j] for i, j in factors], dim=1)  # of each case, as numbers

    def name(pair: int) -> str:
        return str([values[at] for at in divmod(pair, len(values))])

    is_wanted = torch.zeros(len(values) ** 2, dtype=torch.bool)
    is_wanted[pairs] = True
    draw = torch.Generator().manual_seed(0)
    chosen = []
    while is_wanted.any():
        drawn = torch.randint(len(everything), (200,), generator=draw)
        counts = is_wanted[pairs[drawn]].sum(1)
        best = int(drawn[counts == counts.max()][0])
        if not counts.max():  # the last few pairs are rare: look for one of them
            rarest = min(is_wanted.nonzero().flatten().tolist(), key=name)
            best = int((pairs == rarest).any(1).nonzero()[0])
        chosen.append(everything[best])
        is_wanted[pairs[best]] = False
    return chosen
