"""Any model as two ONNX graphs: the encoder, and one step of the decoder.

    write(open_bundle("runs/en-de"), Path("export"))            # encoder.onnx, step.onnx

    encoder.onnx    tokens [B, S], mask [B, S]            ->  source.0 .. and past.0 ..: State after `start`
    step.onnx       token [B], source.0 .., past.0 ..     ->  log_probs [B, V], next.0 .., attention [B, L, H, S]

What a decoder remembers is a tree of tensors; its leaves, in order, are the inputs and outputs. next.i is past.i after
the token. A past that begins with nothing, such as the keys and values of a Transformer, begins with no slots.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.build import build
from heedful.bundle import Bundle, read_floats
from heedful.engines.onnx import ENCODER_FILE, STEP_FILE
from heedful.errors import HeedfulError, require
from heedful.model.seq2seq import Seq2Seq, output_of
from heedful.nn.contract import Look, State, Tree
from heedful.nn.layers import precise
from heedful.text.tokenizer import BOS

ROUNDINGS = ("float32",)
OPSET = 17
LARGEST = 1 << 31  # bytes of a graph with its weights
# The sizes of two examples: where their tensors differ, an axis is free. No number is 1, which could be a broadcast.
SIZES = {"rows": (2, 3), "slots": (4, 6), "steps": (3, 4)}
Free = Mapping[str, Mapping[int, str]]  # the free axes of inputs or outputs, by name


def write(bundle: Bundle, folder: Path, rounding: str = "float32") -> None:
    """Write encoder.onnx and step.onnx."""
    assert rounding in ROUNDINGS
    require("onnx", extra="export", whose="heedful export --to onnx")
    weights = read_floats(bundle)
    if sum(4 * array.size for array in weights.values()) > LARGEST:
        raise HeedfulError(
            "an ONNX graph holds 2 GB at most, and this model is larger: heedful export --to ctranslate2"
        )
    model = build(bundle.model, *(bundle.description.vocabulary[side] for side in ("source", "target")))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in graphs(model.eval()).items():
        (folder / name).write_bytes(graph)


class Example(NamedTuple):
    """A source of some size, what the decoder remembers after some tokens, and a step from there."""

    source: tuple[Tensor, ...]
    state: State
    given: tuple[Tensor, ...]
    said: tuple[Tensor, ...]


def graphs(model: Seq2Seq) -> dict[str, bytes]:
    """The two halves of a model, traced."""
    one, two = (example(model, place) for place in (0, 1))
    count, changing = len(leaves(one.state.source)), len(leaves(one.state.past))
    sources, pasts, nexts = (
        [f"{name}.{number}" for number in range(many)]
        for name, many in (("source", count), ("past", changing), ("next", changing))
    )
    text = free_axes(("tokens", "mask"), one.source, two.source)
    reads = free_axes(("token", *sources, *pasts), one.given, two.given)
    says = free_axes(("log_probs", *nexts, "attention")[: len(one.said)], one.said, two.said)  # some do not look
    begins = [(tuple(tensor.shape), reads[name]) for name, tensor in zip(pasts, one.given[1 + count :], strict=True)]
    return {
        ENCODER_FILE: traced(
            Begin(model, begins), one.source, text, {name: reads[name] for name in (*sources, *pasts)}
        ),
        STEP_FILE: traced(Step(model, one.state), one.given, reads, says),
    }


class Begin(nn.Module):
    """tokens, mask -> the leaves of State before the first token"""

    def __init__(self, model: Seq2Seq, begins: Sequence[tuple[tuple[int, ...], Mapping[int, str]]]) -> None:
        super().__init__()
        self.model, self.begins = model.eval(), begins

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """[B, S], [B, S] -> one tensor per leaf"""
        memory = self.model.encoder(tokens, mask)
        state = self.model.decoder.start(memory)
        past = leaves(state.past)
        if not past:
            sizes = {"rows": mask.size(0), "steps": 0}
            past = [
                memory.states.new_zeros([sizes[free[at]] if at in free else size for at, size in enumerate(shape)])
                for shape, free in self.begins
            ]
        return (*leaves(state.source), *past)


class Step(nn.Module):
    """token and the leaves of State -> log p, the leaves of what is remembered then, and where it looked"""

    def __init__(self, model: Seq2Seq, state: State) -> None:
        super().__init__()
        self.decoder, self.state = model.eval().decoder, state

    def forward(self, token: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        """[B], leaves -> [B, V], leaves, [B, layers, heads, S]"""
        decoded, state = self.decoder(token.unsqueeze(1), filled(self.state, iter(given)), Look())
        log_probs = precise(self.project(decoded.states[:, -1])).log_softmax(-1)
        layers = () if decoded.maps is None else decoded.maps.cross
        looked = [one.weights.squeeze(2) for one in layers if one.weights is not None]  # [B, H, S] of each
        return (log_probs, *leaves(state.past), *([torch.stack(looked, 1)] if looked else []))

    def project(self, states: Tensor) -> Tensor:
        """[B, D] -> logits [B, V]"""
        output = output_of(self.decoder)
        if not isinstance(output, nn.Linear) or output.bias is not None:
            return self.decoder.project(states)
        # With a bias, if only of zeros, a graph reads a tied table as it lies; without, it holds another one, turned.
        return nn.functional.linear(states, output.weight, torch.zeros(output.out_features))


def example(model: Seq2Seq, place: int) -> Example:
    """The first or the second example of SIZES."""
    rows, slots, steps = (sizes[place] for sizes in SIZES.values())
    tokens, mask = torch.full((rows, slots), BOS), torch.ones(rows, slots, dtype=torch.bool)
    with torch.enable_grad():  # as while tracing, a mask stays also where it hides nothing
        start = model.decoder.start(model.encoder(tokens, mask))
        _, state = model.decoder(torch.full((rows, steps), BOS), start)
    state = mapped(state, Tensor.detach)
    given = (tokens[:, 0], *leaves(state))
    with torch.no_grad():
        return Example((tokens, mask), state, given, Step(model, state)(*given))


def free_axes(names: Sequence[str], ones: Sequence[Tensor], others: Sequence[Tensor]) -> Free:
    """Which axes differ between two examples, and what they are called."""
    known = {sizes: name for name, sizes in SIZES.items()} | {(SIZES["steps"][0] + 1, SIZES["steps"][1] + 1): "after"}
    return {
        name: {
            at: known[pair] for at, pair in enumerate(zip(one.shape, other.shape, strict=True)) if len(set(pair)) > 1
        }
        for name, one, other in zip(names, ones, others, strict=True)
    }


# --------------------------------------------------------------------------------------------------- trees and files


def mapped(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """The same tree with every tensor changed, in the order of its leaves."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, tuple):
        parts = [mapped(part, change) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{part.name: mapped(getattr(tree, part.name), change) for part in fields(tree)})
    return tree


def leaves(tree: Tree) -> list[Tensor]:
    """Every tensor of a tree."""
    found: list[Tensor] = []

    def keep(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    mapped(tree, keep)
    return found


def filled(tree: Tree, tensors: Iterator[Tensor]) -> Tree:
    """The tree with other leaves."""
    return mapped(tree, lambda _: next(tensors))


def traced(module: nn.Module, inputs: tuple[Tensor, ...], reads: Free, gives: Free) -> bytes:
    """A module as a graph, without what it would tell of the machine that wrote it."""
    import onnx

    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # Traces are called old-fashioned, and warn of each branch that is taken for good. The new exporter fixes the
        # length that recurrent layers saw, and takes ten times as long; the proof of an export sees to the branches.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            inputs,
            file,  # type: ignore[arg-type]  # this exporter takes files too
            input_names=list(reads),
            output_names=list(gives),
            dynamic_axes={**reads, **gives},
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load_from_string(file.getvalue())
    for node in model.graph.node:
        node.doc_string = ""
        node.ClearField("metadata_props")
    model.graph.ClearField("value_info")
    return bytes(model.SerializeToString(deterministic=True))
