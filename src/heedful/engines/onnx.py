"""The ONNX Runtime engine: two graphs, and the searches in NumPy. No PyTorch.

    engine = open_engine(Path("export"))
    engine.translate([EncodedSource(row=(57, 12, EOS), max_length=20)], SearchOptions(beam=5))

encoder.onnx computes the decoder's initial state from a source; step.onnx reads one token per row. Models have
different state tensors; the names of the graphs' inputs and outputs list them.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, fsum
from pathlib import Path
from typing import Any

import numpy as np

from heedful.engines.base import EncodedSource, EngineResult, SearchOptions, check_threads
from heedful.engines.numpy_search import Array, Arrays, run_search, select_rows, stack_attention
from heedful.errors import HeedfulError, require
from heedful.inputs.kinds import pad_features
from heedful.text.tokenizer import BOS, EOS, PAD
from heedful.types import Hypothesis

ENCODER_FILE, STEP_FILE = "encoder.onnx", "step.onnx"
REDUCTION = "reduction"  # metadata of the encoder: frames of the source per slot
STATE_PARTS = ("source", "past")


class OnnxEngine:
    """A model that consists of two ONNX graphs."""

    name = "onnx"

    def __init__(self, encoder: Any, step: Any) -> None:
        self.encoder, self.graph = encoder, step
        self.step_inputs = [node.name for node in step.get_inputs()]
        self.encoder_outputs = [node.name for node in encoder.get_outputs()]
        self.step_outputs = [node.name for node in step.get_outputs()]
        next_names = {name.replace("past", "next") for name in self.encoder_outputs if name.startswith("past")}
        self.reduction = int(encoder.get_modelmeta().custom_metadata_map.get(REDUCTION, 1))
        self.encoder_inputs = {node.name for node in encoder.get_inputs()}
        self.source_name = "features" if "features" in self.encoder_inputs else "tokens"
        if self.encoder_inputs not in ({self.source_name, "mask"}, {"mask"}) or not (  # the latter: a language model
            {*self.step_inputs} <= {"token", *self.encoder_outputs}
            and {*self.step_outputs} - {"attention"} == {"log_probs", *next_names}
        ):
            raise HeedfulError(
                "the inputs and outputs of the two ONNX graphs do not match; export the model again with: "
                "heedful export MODEL --to onnx"
            )

    def translate(self, sources: Sequence[EncodedSource], options: SearchOptions) -> list[tuple[EngineResult, ...]]:
        """Up to `options.num_best` results for each source, best first; the sources are one batch."""
        if not sources:
            return []
        found = run_search(self.step, *self.start(sources), sources, options)
        return [
            tuple(self.trim_attention(result, source) for result in results)
            for results, source in zip(found, sources, strict=True)
        ]

    def score_targets(
        self, sources: Sequence[EncodedSource], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[EngineResult]:
        """Log p of every token of the targets and of the end token, and (on request) the cross-attention."""
        if not sources:
            return []
        source, past = self.start(sources)
        golds = [[*target, EOS] for target in targets]
        active = list(range(len(golds)))
        log_probs: list[list[float]] = [[] for _ in golds]
        attentions: list[list[tuple[Array | None, int]]] = [[] for _ in golds]
        tokens = np.full(len(golds), BOS)
        for step in range(max(map(len, golds))):
            staying = [row for row, sentence in enumerate(active) if step < len(golds[sentence])]
            if len(staying) < len(active):
                active = [active[row] for row in staying]
                tokens, source, past = tokens[staying], select_rows(source, staying), select_rows(past, staying)
            step_log_probs, past, weights = self.step(tokens, source, past)
            tokens = np.array([golds[sentence][step] for sentence in active])
            for row, (sentence, token) in enumerate(zip(active, tokens, strict=True)):
                log_probs[sentence].append(float(step_log_probs[row, token]))
                attentions[sentence].append((weights if attention else None, row))
        results = [
            EngineResult(
                Hypothesis(tuple(target), fsum(values), fsum(values), tuple(values), True),
                stack_attention(weights, len(encoded.row)),
            )
            for encoded, target, values, weights in zip(sources, targets, log_probs, attentions, strict=True)
        ]
        return [self.trim_attention(result, source) for result, source in zip(results, sources, strict=True)]

    def trim_attention(self, result: EngineResult, source: EncodedSource) -> EngineResult:
        """Only the slots that are not padding, if a slot has several frames of the source."""
        if result.attention is None or self.reduction == 1:
            return result
        return replace(result, attention=result.attention[..., : ceil(len(source.row) / self.reduction)])

    def start(self, sources: Sequence[EncodedSource]) -> tuple[list[Array], list[Array]]:
        """Run the encoder; return the constant and the changing part of the decoder's initial state."""
        pad = pad_tokens if self.source_name == "tokens" else pad_features
        rows, mask = pad([source.row for source in sources])
        inputs = {self.source_name: rows, "mask": mask}
        outputs = self.encoder.run(self.encoder_outputs, {name: inputs[name] for name in self.encoder_inputs})
        fixed, past = (
            [array for name, array in zip(self.encoder_outputs, outputs, strict=True) if name.startswith(part)]
            for part in STATE_PARTS
        )
        return fixed, past

    def step(self, tokens: Array, source: Arrays, past: Arrays) -> tuple[Array, list[Array], Array | None]:
        """One token per row -> log p of the next, the new past, and the cross-attention."""
        inputs = {"token": tokens.astype(np.int64)}
        for part, arrays in zip(STATE_PARTS, (source, past), strict=True):
            inputs |= {f"{part}.{number}": array for number, array in enumerate(arrays)}
        arrays = self.graph.run(self.step_outputs, {name: inputs[name] for name in self.step_inputs})
        outputs = dict(zip(self.step_outputs, arrays, strict=True))
        next_past = [outputs[f"next.{number}"] for number in range(len(past))]
        return outputs["log_probs"], next_past, outputs.get("attention")


def pad_tokens(rows: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """Rows of token ids -> tokens [B, S], and the mask [B, S] of real slots."""
    tokens = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    mask = np.zeros(tokens.shape, dtype=bool)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = row
        mask[number, : len(row)] = True
    return tokens, mask


def open_engine(folder: Path, *, device: str = "cpu", threads: int | None = None) -> OnnxEngine:
    """Open a directory with the two graphs; `threads` applies to this engine only."""
    require("onnxruntime", extra="onnx", whose="this export")
    import onnxruntime

    if device != "cpu":
        raise HeedfulError(
            "heedful runs ONNX on the CPU only: remove --device, or export the model with: heedful "
            "export MODEL --to ctranslate2"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = check_threads(threads) or 0
    options.log_severity_level = 3  # errors only: warnings about graphs do not help users
    graphs = []
    for file in (folder / ENCODER_FILE, folder / STEP_FILE):
        try:
            graphs.append(onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]))
        except Exception as error:  # its errors have no common base class
            raise HeedfulError(f"ONNX Runtime cannot read {file}: {error}. Export the model again") from error
    return OnnxEngine(*graphs)
