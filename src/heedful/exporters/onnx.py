"""Write any model as two ONNX graphs: the encoder, and one decoder step.

    write(open_bundle("runs/en-de"), Path("export"))            # encoder.onnx, step.onnx

    encoder.onnx    tokens [B, S], mask [B, S]            ->  source.0 .. and past.0 ..: State after `start`
                    of pictures and sound: features [B, S, F] instead of tokens; of a language model: only mask [B, 0]
    step.onnx       token [B], source.0 .., past.0 ..     ->  log_probs [B, V], next.0 .., attention [B, L, H, S]

The decoder state is a tree of tensors; its leaves, in order, are the inputs and outputs. next.i is past.i after the
token. A past that starts empty, such as a Transformer's keys and values, has 0 steps.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful import config
from heedful.build import build
from heedful.bundle import Bundle, read_float_weights
from heedful.config import TextInputSettings
from heedful.engines.onnx import ENCODER_FILE, REDUCTION, STEP_FILE
from heedful.errors import HeedfulError, require
from heedful.inputs.kinds import Input, make_input
from heedful.model.seq2seq import Seq2Seq, output_projection
from heedful.nn.contract import Look, State, Tree
from heedful.nn.layers import promote_to_fp32
from heedful.text.tokenizer import BOS

TEXT = make_input(TextInputSettings())
QUANTIZATIONS = ("float32",)
OPSET = 17
MAX_GRAPH_BYTES = 1 << 31  # with its weights
# Sizes of two examples: an axis whose size differs is dynamic. No size is 1, to exclude broadcasting.
EXAMPLE_SIZES = {"rows": (2, 3), "slots": (4, 6), "steps": (3, 4)}
DynamicAxes = Mapping[str, Mapping[int, str]]  # axis -> name, for each input or output


def write(bundle: Bundle, folder: Path, quantization: str = "float32") -> None:
    """Write encoder.onnx and step.onnx."""
    assert quantization in QUANTIZATIONS
    require("onnx", extra="export", whose="heedful export --to onnx")
    weights = read_float_weights(bundle)
    if sum(4 * array.size for array in weights.values()) > MAX_GRAPH_BYTES:
        raise HeedfulError(
            "an ONNX graph is limited to 2 GB, but this model is larger: use heedful export --to ctranslate2"
        )
    require_exportable(bundle.model)
    sizes, input_settings = bundle.description.vocabulary, bundle.description.input
    model = build(bundle.model, sizes.get("source"), sizes["target"], input=input_settings)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in trace_graphs(model.eval(), make_input(input_settings)).items():
        (folder / name).write_bytes(graph)


def require_exportable(model: config.ModelSettings) -> None:
    """Raise an error for models that are not a graph of ONNX operators."""
    if isinstance(model.encoder, config.GraphSettings):
        raise HeedfulError("models of graphs cannot be exported to ONNX: use the model directory itself, with PyTorch")
    if isinstance(model.decoder, config.LabelSettings):
        raise HeedfulError("models of labels cannot be exported to ONNX: use the model directory itself, with PyTorch")
    if isinstance(model.decoder, config.CTCSettings):
        raise HeedfulError("CTC models cannot be exported to ONNX: serve the model directory itself, with PyTorch")
    if getattr(model.encoder, "reset", "after") == "before":
        raise HeedfulError(
            'an encoder with reset = "before" is a loop that ONNX graphs cannot contain: '
            "serve the model directory itself, with PyTorch"
        )


class Example(NamedTuple):
    """A source, the decoder state after some tokens, and the inputs and outputs of one more step."""

    source: tuple[Tensor, ...]
    state: State
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def trace_graphs(model: Seq2Seq, inputs: Input = TEXT) -> dict[str, bytes]:
    """The two graphs of a model, by file name; `inputs` describes its sources."""
    if not getattr(model.decoder, "causal", True):
        raise HeedfulError(
            "the decoder has no causal mask, so it cannot generate: build it with causal=True to export it"
        )
    first, second = (make_example(model, inputs, index) for index in (0, 1))
    num_sources, num_pasts = len(list_tensors(first.state.source)), len(list_tensors(first.state.past))
    sources, pasts, nexts = (
        [f"{name}.{number}" for number in range(count)]
        for name, count in (("source", num_sources), ("past", num_pasts), ("next", num_pasts))
    )
    source_names = ("tokens" if inputs.num_features is None else "features", "mask")
    source_axes = find_dynamic_axes(source_names, first.source, second.source, frames_per_slot(model))
    input_axes = find_dynamic_axes(("token", *sources, *pasts), first.inputs, second.inputs)
    outputs = ("log_probs", *nexts, "attention")[: len(first.outputs)]  # models without attention have no such output
    output_axes = find_dynamic_axes(outputs, first.outputs, second.outputs)
    state_axes = {name: input_axes[name] for name in (*sources, *pasts)}
    empty_pasts = [
        (tuple(tensor.shape), input_axes[name])
        for name, tensor in zip(pasts, first.inputs[1 + num_sources :], strict=True)
    ]
    return {
        ENCODER_FILE: trace_to_onnx(
            EncoderStart(model, empty_pasts), first.source, source_axes, state_axes, frames_per_slot(model)
        ),
        STEP_FILE: trace_to_onnx(DecoderStep(model, first.state), first.inputs, input_axes, output_axes),
    }


class EncoderStart(nn.Module):
    """The source, mask -> the leaves of State before the first token"""

    def __init__(self, model: Seq2Seq, empty_pasts: Sequence[tuple[tuple[int, ...], Mapping[int, str]]]) -> None:
        super().__init__()
        self.model, self.empty_pasts = model.eval(), empty_pasts

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """[B, S] or [B, S, F], [B, S] -> one tensor per leaf"""
        memory = self.model.encoder(source, mask)
        state = self.model.decoder.start(memory)
        past = list_tensors(state.past)
        if not past:
            sizes = {"rows": mask.size(0), "steps": 0}
            past = [
                memory.states.new_zeros(
                    [sizes[axes[axis]] if axis in axes else size for axis, size in enumerate(shape)]
                )
                for shape, axes in self.empty_pasts
            ]
        return (*list_tensors(state.source), *past)


class DecoderStep(nn.Module):
    """token and the leaves of State -> log p, the leaves of the next `past`, and cross-attention"""

    def __init__(self, model: Seq2Seq, state: State) -> None:
        super().__init__()
        self.decoder, self.state = model.eval().decoder, state

    def forward(self, token: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """[B], leaves -> [B, V], leaves, [B, layers, heads, S]"""
        decoded, state = self.decoder(token.unsqueeze(1), replace_tensors(self.state, iter(tensors)), Look())
        log_probs = promote_to_fp32(self.project(decoded.states[:, -1])).log_softmax(-1)
        layers = () if decoded.maps is None else decoded.maps.cross
        weights = [layer.weights.squeeze(2) for layer in layers if layer.weights is not None]  # [B, H, S] of each
        return (log_probs, *list_tensors(state.past), *([torch.stack(weights, 1)] if weights else []))

    def project(self, states: Tensor) -> Tensor:
        """[B, D] -> logits [B, V]"""
        output = output_projection(self.decoder)
        if not isinstance(output, nn.Linear) or output.bias is not None:
            return self.decoder.project(states)
        # With a bias, even of zeros, the graph reuses a tied table; without one, it stores a transposed copy.
        return nn.functional.linear(states, output.weight, torch.zeros(output.out_features))


def make_example(model: Seq2Seq, inputs: Input, index: int) -> Example:
    rows, slots, steps = (sizes[index] for sizes in EXAMPLE_SIZES.values())
    slots = slots * frames_per_slot(model) if inputs.num_slots is None else inputs.num_slots
    if inputs.num_features is None:
        source = torch.full((rows, slots), BOS)
    else:
        source = torch.ones(rows, slots, inputs.num_features)
    mask = torch.ones(rows, slots, dtype=torch.bool)
    with torch.enable_grad():  # keeps an all-true mask, as during tracing
        start = model.decoder.start(model.encoder(source, mask))
        _, state = model.decoder(torch.full((rows, steps), BOS), start)
    state = map_tensors(state, Tensor.detach)
    step_inputs = (torch.full((rows,), BOS), *list_tensors(state))
    with torch.no_grad():
        return Example((source, mask), state, step_inputs, DecoderStep(model, state)(*step_inputs))


def frames_per_slot(model: Seq2Seq) -> int:
    return getattr(model.encoder, "reduction", 1)


def find_dynamic_axes(
    names: Sequence[str], first: Sequence[Tensor], second: Sequence[Tensor], reduction: int = 1
) -> DynamicAxes:
    """The axes in which the tensors of two examples differ, with the names of their sizes."""
    steps = EXAMPLE_SIZES["steps"]
    frames = (reduction * EXAMPLE_SIZES["slots"][0], reduction * EXAMPLE_SIZES["slots"][1])
    size_names = {frames: "frames", (steps[0] + 1, steps[1] + 1): "after"}
    size_names |= {sizes: name for name, sizes in EXAMPLE_SIZES.items()}
    return {
        name: {
            axis: size_names[sizes]
            for axis, sizes in enumerate(zip(tensor.shape, other.shape, strict=True))
            if len(set(sizes)) > 1
        }
        for name, tensor, other in zip(names, first, second, strict=True)
    }


# --------------------------------------------------------------------------------------------------- trees and files


def map_tensors(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """The tree with `change` applied to every tensor, in the order of the leaves."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, tuple):
        parts = [map_tensors(part, change) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{part.name: map_tensors(getattr(tree, part.name), change) for part in fields(tree)})
    return tree


def list_tensors(tree: Tree) -> list[Tensor]:
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(tree, collect)
    return tensors


def replace_tensors(tree: Tree, tensors: Iterator[Tensor]) -> Tree:
    """The tree with its tensors replaced by `tensors`, in order."""
    return map_tensors(tree, lambda _: next(tensors))


def trace_to_onnx(
    module: nn.Module, inputs: tuple[Tensor, ...], input_axes: DynamicAxes, output_axes: DynamicAxes, reduction: int = 1
) -> bytes:
    """A module as an ONNX graph, without local paths and source lines."""
    import onnx

    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # Tracing is deprecated and warns about data-dependent branches, which the proof of an export checks. The new
        # exporter fixes the length of recurrent layers and is ten times slower.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            inputs,
            file,  # type: ignore[arg-type]  # this exporter takes files too
            input_names=list(input_axes),
            output_names=list(output_axes),
            dynamic_axes={**input_axes, **output_axes},
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load_from_string(file.getvalue())
    for node in model.graph.node:
        node.doc_string = ""
        node.ClearField("metadata_props")
    model.graph.ClearField("value_info")
    if reduction != 1:
        onnx.helper.set_model_props(model, {REDUCTION: str(reduction)})
    return bytes(model.SerializeToString(deterministic=True))
