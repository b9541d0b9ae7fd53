"""ONNX Runtime's engine behind the same face: two graphs and the searches in NumPy, no PyTorch.

    engine = opened(Path("export"))
    engine.answers([Question(tokens=(57, 12, EOS), limit=20)], Search(beam=5))

encoder.onnx gives everything that a decoder remembers of a source, step.onnx reads one token per row. Which tensors
those are differs from model to model; the names of the graphs' inputs and outputs tell.
"""

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np

from heedful.engines.base import Answer, Question, Search, usable_threads
from heedful.engines.numpy_search import Array, Arrays, followed, found, picked
from heedful.errors import HeedfulError, require
from heedful.text.tokenizer import BOS, EOS, PAD
from heedful.types import Hypothesis

ENCODER, STEP = "encoder.onnx", "step.onnx"
SIDES = ("source", "past")


class Onnx:
    """A model as two graphs."""

    name = "onnx"

    def __init__(self, encoder: Any, step: Any) -> None:
        self.encoder, self.graph = encoder, step
        self.reads = [one.name for one in step.get_inputs()]
        self.gives = [one.name for one in encoder.get_outputs()]
        self.says = [one.name for one in step.get_outputs()]
        after = {name.replace("past", "next") for name in self.gives if name.startswith("past")}
        if {one.name for one in encoder.get_inputs()} != {"tokens", "mask"} or not (
            {*self.reads} <= {"token", *self.gives} and {*self.says} - {"attention"} == {"log_probs", *after}
        ):
            raise HeedfulError("these graphs do not fit together: heedful export --to onnx writes such that do")

    def answers(self, questions: Sequence[Question], search: Search) -> list[tuple[Answer, ...]]:
        """Up to `search.best` answers to each question, best first; the questions are one batch."""
        if not questions:
            return []
        return found(self.step, *self.start(questions), questions, search)

    def given(
        self, questions: Sequence[Question], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[Answer]:
        """What the model says of given answers: log p of every token and of the end after them, and where it looked."""
        if not questions:
            return []
        source, past = self.start(questions)
        golds = [[*target, EOS] for target in targets]
        alive = list(range(len(golds)))
        each: list[list[float]] = [[] for _ in golds]
        seen: list[list[tuple[Array | None, int]]] = [[] for _ in golds]
        tokens = np.full(len(golds), BOS)
        for step in range(max(map(len, golds))):
            stay = [row for row, sentence in enumerate(alive) if step < len(golds[sentence])]
            if len(stay) < len(alive):
                alive = [alive[row] for row in stay]
                tokens, source, past = tokens[stay], picked(source, stay), picked(past, stay)
            log_probs, past, looked = self.step(tokens, source, past)
            tokens = np.array([golds[sentence][step] for sentence in alive])
            for row, (sentence, token) in enumerate(zip(alive, tokens, strict=True)):
                each[sentence].append(float(log_probs[row, token]))
                seen[sentence].append((looked if attention else None, row))
        return [
            Answer(
                Hypothesis(tuple(target), fsum(values), fsum(values), tuple(values), True),
                followed(looks, len(question.tokens)),
            )
            for question, target, values, looks in zip(questions, targets, each, seen, strict=True)
        ]

    def start(self, questions: Sequence[Question]) -> tuple[list[Array], list[Array]]:
        """What the decoder knows of every source, and where it starts from."""
        longest = max(len(question.tokens) for question in questions)
        tokens = np.full((len(questions), longest), PAD, dtype=np.int64)
        mask = np.zeros(tokens.shape, dtype=bool)
        for row, question in enumerate(questions):
            tokens[row, : len(question.tokens)] = question.tokens
            mask[row, : len(question.tokens)] = True
        made = self.encoder.run(self.gives, {"tokens": tokens, "mask": mask})
        sides = [[one for name, one in zip(self.gives, made, strict=True) if name.startswith(side)] for side in SIDES]
        return sides[0], sides[1]

    def step(self, tokens: Array, source: Arrays, past: Arrays) -> tuple[Array, list[Array], Array | None]:
        """One token per row -> log p of the next, what is remembered now, and where it looked."""
        every = {"token": tokens.astype(np.int64)}
        for side, arrays in zip(SIDES, (source, past), strict=True):
            every |= {f"{side}.{number}": array for number, array in enumerate(arrays)}
        made = dict(zip(self.says, self.graph.run(self.says, {name: every[name] for name in self.reads}), strict=True))
        return made["log_probs"], [made[f"next.{number}"] for number in range(len(past))], made.get("attention")


def opened(folder: Path, *, device: str = "cpu", threads: int | None = None) -> Onnx:
    """The model in a folder with the two graphs."""
    require("onnxruntime", extra="onnx", whose="this export")
    import onnxruntime

    if device != "cpu":
        raise HeedfulError(
            "heedful runs ONNX on the CPU only: leave out --device, or use heedful export --to ctranslate2"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_threads(threads) or 0
    options.log_severity_level = 3  # errors: it has opinions about graphs that help nobody who translates
    graphs = []
    for file in (folder / ENCODER, folder / STEP):
        try:
            graphs.append(onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]))
        except Exception as error:  # its errors have no root of their own
            raise HeedfulError(f"{file}: ONNX Runtime cannot read it: {error}. Export the model again") from error
    return Onnx(*graphs)
