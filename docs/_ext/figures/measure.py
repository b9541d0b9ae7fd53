"""The numbers of the figures that need PyTorch: what the bundled model does, and what cells of the pages compute.

    PYTHONPATH=src:docs/_ext python -m figures.measure [NAME ...]    # writes data/*.json; seconds on one core

Drawing needs neither PyTorch nor a model. tests/test_figures.py computes all of it again and compares.
"""

import contextlib
import io
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import nn

from figures.canvas import DATA
from heedful.data.batch import collate
from heedful.inspection.api import open_model, trace_text
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.attention import Additive, Attention
from heedful.nn.cells import CELLS
from heedful.nn.contract import Look
from heedful.nn.decoders import RecurrentDecoder
from heedful.nn.encoders import Bottleneck, RecurrentEncoder
from heedful.nn.layers import Embed, initialize, output_layer
from heedful.trace import Sentence

PAD, BOS, EOS, V, D = 0, 1, 2, 12, 16  # of the page on encoder and decoder
SOURCE, TARGET = [5, 9, 4, 7, 7, 3, 10, 8], [6, 3, 11, 4]


def run_cells(page: str, last: str) -> dict[str, Any]:
    """The names that the cells of a page define, up to the cell that contains `last`."""
    text = (Path(__file__).parents[2] / "lectures" / f"{page}.md").read_text(encoding="utf-8")
    space: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, page, "exec"), space)
        if last in code:
            return space
    raise ValueError(f"no cell of {page} contains {last!r}")


def translate(text: str, beam: int, top_k: int = 10) -> Sentence:
    """The trace of one sentence by the bundled model."""
    model = open_model(str(files("heedful") / "samples" / "pt-en" / "model"))
    (sentence,) = trace_text(model, text, None, beam, {"importance": False, "top_k": top_k})
    return sentence


def words_of(pieces: Sequence[Any]) -> list[list[int]]:
    """Places of pieces, one list per word; full stops and the end token are words of their own."""
    groups: list[list[int]] = []
    last: object = None
    for at, piece in enumerate(pieces):
        is_apart = piece.word is None or not any(letter.isalnum() for letter in piece.text)
        key = ("apart", at) if is_apart else piece.word
        if key == last:
            groups[-1].append(at)
        else:
            groups.append([at])
        last = key
    return groups


def spell(pieces: Sequence[Any], groups: list[list[int]]) -> list[str]:
    return ["".join(pieces[at].text for at in group).strip() for group in groups]


def attention_map(text: str) -> dict[str, Any]:
    """Weights of words: the sum over the pieces of a source word, the mean over those of a target word."""
    sentence = translate(text, beam=4)
    cross = sentence.attention["cross"].array()
    rows, columns = words_of(sentence.target.pieces), words_of(sentence.source.pieces)

    def by_words(weights: Any) -> list[list[float]]:
        return [[float(weights[row][:, column].sum(-1).mean()) for column in columns] for row in rows]

    return {
        "source": spell(sentence.source.pieces, columns),
        "target": spell(sentence.target.pieces, rows),
        "mean": by_words(cross.mean((0, 1))),
        "all": [[by_words(weights) for weights in heads] for heads in cross],
    }


def beam_tree() -> dict[str, Any]:
    """The search until its winner ends."""
    sentence = translate("Ele voltou às seis.", beam=3)
    assert sentence.tree
    assert sentence.tree.best is not None
    fields = ("step", "parent", "text", "logp", "total", "rank", "fate", "score")
    last = sentence.tree.nodes[sentence.tree.best].step
    return {
        "source": sentence.source.text,
        "target": sentence.target.text,
        "best": sentence.tree.best,
        "nodes": [
            {field: getattr(node, field) for field in fields} for node in sentence.tree.nodes if node.step <= last
        ],
        "logp": sentence.logp,
    }


def next_word() -> dict[str, Any]:
    """The distribution of one step, and what three temperatures make of it."""
    step, shown = 3, 40
    sentence = translate("Tom quer voltar para Boston.", beam=4, top_k=100_000)
    top = sentence.steps[step].top
    shaped = {}
    for temperature in (0.5, 1.0, 2.0):
        raised = [math.exp(logp / temperature) for _, logp in top]
        shaped[str(temperature)] = [one / sum(raised) for one in raised][:shown]
    return {
        "source": sentence.source.text,
        "prefix": "".join(piece.text for piece in sentence.target.pieces[:step]).strip(),
        "vocabulary": len(top),
        "words": [word for word, _ in top[:shown]],
        "p": shaped,
    }


@torch.no_grad()
def gru_as_attention() -> dict[str, Any]:
    """The second cell of the page on attention: how much of each candidate is left in the last state, one unit."""
    steps, width = 8, 4
    torch.manual_seed(0)
    gru: Any = CELLS["gru"](3, width).double()
    x, h = torch.randn(steps, 3, dtype=torch.double), torch.randn(width, dtype=torch.double)
    states, _ = gru(x, h.unsqueeze(0))
    kept = []
    for t in range(steps):
        of_x = (gru.weight_ih_l0 @ x[t] + gru.bias_ih_l0).chunk(3)
        of_h = (gru.weight_hh_l0 @ (states[t - 1] if t else h) + gru.bias_hh_l0).chunk(3)
        kept.append(torch.sigmoid(of_x[1] + of_h[1]))
    u = torch.stack(kept)
    weights = torch.stack([u[i + 1 :].prod(0) * (1 - u[i]) for i in range(steps)])
    return {"u": u[:, 0].tolist(), "first": float(u.prod(0)[0]), "weights": weights[:, 0].tolist()}


def reach() -> dict[str, list[float]]:
    """The second cell of the page on recurrent networks: the gradient of a token that was read k steps ago."""
    shares = {}
    for kind in CELLS:
        torch.manual_seed(0)
        cell: Any = CELLS[kind](32, 32)
        initialize(cell)
        x = torch.randn(50, 32, requires_grad=True)
        (gradient,) = torch.autograd.grad(cell(x)[0][-1].sum(), x)
        norms = gradient.norm(dim=-1).flip(0)
        shares[kind] = (norms / norms[0]).tolist()
    return shares


def bottleneck() -> Seq2Seq:
    """The model of the page on encoder and decoder."""
    torch.manual_seed(0)
    encoder = Bottleneck(RecurrentEncoder(Embed(nn.Embedding(V, D)), D, bidirectional=False))
    attention = Attention(Additive(D, D), D)
    decoder = RecurrentDecoder(Embed(nn.Embedding(V, D)), output_layer(D, V), D, D, attention, initial_state="last")
    model = Seq2Seq(encoder, decoder).eval()
    initialize(model)
    return model


def product() -> list[list[float]]:
    """Its first cell: what each step reads, what it says, and with what probability."""
    model: Any = bottleneck()
    batch = collate([(SOURCE, TARGET)], bos=BOS, eos=EOS, pad=PAD)
    decoded, _ = model.decoder(batch.inputs, model.decoder.start(model.encoder(*batch.source)), Look())
    p = model.decoder.project(decoded.states)[0].softmax(-1).detach()
    steps = zip([BOS, *TARGET], [*TARGET, EOS], strict=True)
    return [[read, say, float(p[t, say])] for t, (read, say) in enumerate(steps)]


def influence() -> list[float]:
    """Its second cell: the gradient of the one vector with respect to each word of a source of 24."""
    encoder: Any = bottleneck().encoder
    words = encoder.encoder.embed(torch.tensor([SOURCE * 3])).detach().requires_grad_()
    (layer,) = encoder.encoder.ahead
    (gradient,) = torch.autograd.grad(layer(words)[0][0, -1].sum(), words)
    norms: list[float] = gradient[0].norm(dim=-1).tolist()
    return norms


def captioner() -> dict[str, Any]:
    """The page on captions: weights and gates of one caption, and the attention of each region with the penalty."""
    space = run_cells("captions", "even = train")
    return {
        "words": [space["WORDS"][word] for word in space["captions"][0].tolist()],
        "weights": space["weights"].tolist(),
        "gates": space["gates"],
        **space["totals"],
    }


def listener() -> dict[str, Any]:
    """The page on speech: one recording, and the probability of blank and tones in each of its frames."""
    space = run_cells("speech", "heard = listener")
    return {"sound": space["sound"][0].tolist(), "heard": space["heard"].tolist()}


MEASURES: dict[str, Callable[[], Any]] = {
    "map": lambda: attention_map("Maria tem um gato preto e um cachorro branco."),
    "map-short": lambda: attention_map("Ela tem um gato preto."),
    "beam": beam_tree,
    "next": next_word,
    "gru": gru_as_attention,
    "reach": reach,
    "product": product,
    "influence": influence,
    "captions": captioner,
    "listener": listener,
    "choices": lambda: run_cells("hard-attention", "curves = {")["curves"],
    "reads": lambda: {name: list(pair) for name, pair in run_cells("today", "found = {}")["found"].items()},
    "hops": lambda: run_cells("graphs", "reach.append")["reach"],
}


def rounded(value: Any) -> Any:
    """Numbers with six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MEASURES:
        measure = MEASURES[name]
        text = json.dumps(rounded(measure()), ensure_ascii=False)
        (DATA / f"{name}.json").write_text(text + "\n", encoding="utf-8")
