"""Sentence boundary rules as an ONNX network for MiniSBD, which Argos Translate runs before translating.

    Path("rules.onnx").write_bytes(make_sentence_splitter("en"))
    minisbd.SBDetect("rules.onnx").sentences("Dr. Who? Yes.")        # ["Dr. Who?", "Yes."]

MiniSBD maps characters to ids with a vocabulary stored in the file, adds two features (capital, digit), and expects a
class per character: nothing (0), end of a word (1) or end of a sentence (2). Here the id of a character selects its
kinds, and each rule is a neuron: it fires if all required kinds and no forbidden kinds are around a position. Nothing
is learned or downloaded.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.errors import require
from heedful.text.sentences import CLOSERS, ENDS, WIDE_ENDS

if TYPE_CHECKING:
    import onnx

Array = NDArray[np.float32]
Pattern = tuple[tuple[int, str], ...]  # (offset from the position, kind of character)

LETTERS = range(0x600)  # code points to search for lowercase letters; higher ones have few
OPENERS = "([{\u00ab\u201c\u2018\u201e\u201a\"'\u00bf\u00a1\u2013\u2014-/"
KINDS = {
    "end": frozenset(ENDS),
    "stop": frozenset("."),
    "wide": frozenset(WIDE_ENDS),
    "closer": frozenset(CLOSERS) - {"\\"},
    "space": frozenset(" "),
    "consonant": frozenset("bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ"),
    "small": frozenset(letter for letter in map(chr, LETTERS) if letter.islower()),
}
BETWEEN = frozenset(" ." + OPENERS)  # may precede the first letter of a word
FEATURES = {"capital": "capitalized", "digit": "numeric"}  # MiniSBD's names
CHANNELS = [*KINDS, "inner", *FEATURES]
BEFORE, AFTER = 4, 2  # context of a rule, in characters
MAX_CHARACTERS = 1000  # per run; MiniSBD's minimum
IR_VERSION, OPSET = 8, 13  # readable by ONNX Runtime 1.10


@dataclass(frozen=True)
class BoundaryRule:
    """Characters required and forbidden around a position."""

    required: Pattern
    forbidden: Pattern = ()


SPACE_FOLLOWS: Pattern = ((1, "space"),)
SMALL_FOLLOWS: Pattern = ((2, "small"),)
ENDINGS = (
    BoundaryRule(((0, "end"), *SPACE_FOLLOWS), SMALL_FOLLOWS),
    BoundaryRule(((-1, "end"), (0, "closer"), *SPACE_FOLLOWS), SMALL_FOLLOWS),
    BoundaryRule(((-2, "end"), (-1, "closer"), (0, "closer"), *SPACE_FOLLOWS), SMALL_FOLLOWS),
    BoundaryRule(((0, "wide"),), ((1, "wide"), (1, "closer"))),
    BoundaryRule(((-1, "wide"), (0, "closer")), ((1, "closer"),)),
)
ABBREVIATIONS = (  # J. Smith, z. B., U.S. -- St. Petersburg, Dr. Who -- am 31. Mai -- Mrs. Smith, bzw. Frau Schmidt
    BoundaryRule(((-1, "inner"), (0, "stop")), ((-2, "inner"),)),
    BoundaryRule(((-2, "capital"), (-1, "inner"), (0, "stop")), ((-3, "inner"),)),
    BoundaryRule(((-2, "digit"), (-1, "inner"), (0, "stop")), ((-3, "inner"),)),
    BoundaryRule((*((offset, "consonant") for offset in (-3, -2, -1)), (0, "stop")), ((-4, "inner"),)),
)


def make_sentence_splitter(language: str) -> bytes:
    """The ONNX file; all languages have the same rules."""
    require("onnx", extra="export", whose="heedful export --to argos")
    from onnx import helper

    characters = sorted(frozenset().union(*KINDS.values(), BETWEEN))
    units = ["<PAD>", "<UNK>", *characters]
    vocabulary = {
        "lang": language, "idx": 0, "cutoff": 0, "lower": False,
        "_unit2id": {unit: number for number, unit in enumerate(units)}, "_id2unit": units,
    }  # fmt: skip
    config = {"feat_funcs": list(FEATURES.values()), "max_seqlen": MAX_CHARACTERS, "batch_size": 1}
    model = helper.make_model(
        make_graph(units),
        producer_name="heedful",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    properties = {"lang_code": language, "config": json.dumps(config), "vocab": json.dumps(vocabulary)}
    helper.set_model_props(model, properties)
    return bytes(model.SerializeToString(deterministic=True))


def make_graph(units: list[str]) -> "onnx.GraphProto":
    """units [B, S], features [B, S, 2] -> verdicts [B, S, 3]."""
    from onnx import TensorProto, helper, numpy_helper

    weights, biases = rule_weights((*ENDINGS, *ABBREVIATIONS))
    votes = np.zeros((3, len(biases), 1), np.float32)
    votes[2, :, 0] = [1.0] * len(ENDINGS) + [-float(len(ENDINGS))] * len(ABBREVIATIONS)
    constants = {
        "kinds": np.array([character_kinds(unit) for unit in units], np.float32),
        "weights": weights,
        "biases": biases,
        "votes": votes,
        "start": np.array([0.5, -1.0, 0.0], np.float32),  # class 0 unless a rule fires; class 1 never
    }
    rows_and_places = ["rows", "places"]
    return helper.make_graph(
        [
            helper.make_node("Gather", ["kinds", "units"], ["seen"]),
            helper.make_node("Concat", ["seen", "features"], ["known"], axis=2),
            helper.make_node("Transpose", ["known"], ["rows"], perm=[0, 2, 1]),
            helper.make_node("Conv", ["rows", "weights", "biases"], ["heard"], pads=[BEFORE, AFTER]),
            helper.make_node("Relu", ["heard"], ["fired"]),
            helper.make_node("Conv", ["fired", "votes", "start"], ["sums"]),
            helper.make_node("Transpose", ["sums"], ["verdicts"], perm=[0, 2, 1]),
        ],
        "sentences",
        inputs=[
            helper.make_tensor_value_info("units", TensorProto.INT64, rows_and_places),
            helper.make_tensor_value_info("features", TensorProto.FLOAT, [*rows_and_places, len(FEATURES)]),
        ],
        outputs=[helper.make_tensor_value_info("verdicts", TensorProto.FLOAT, [*rows_and_places, 3])],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )


def character_kinds(unit: str) -> list[bool]:
    """Which KINDS a character has, and whether it is inside a word; <UNK> is inside a word, <PAD> has no kinds."""
    return [*(unit in kind for kind in KINDS.values()), unit != "<PAD>" and unit not in BETWEEN]


def rule_weights(rules: tuple[BoundaryRule, ...]) -> tuple[Array, Array]:
    """Weights [rules, channels, window] and biases: the sum is 1 where a rule holds, 0 or less elsewhere."""
    weights = np.zeros((len(rules), len(CHANNELS), BEFORE + 1 + AFTER), np.float32)
    for row, rule in enumerate(rules):
        for weight, pattern in ((1.0, rule.required), (-1.0, rule.forbidden)):
            for offset, kind in pattern:
                weights[row, CHANNELS.index(kind), BEFORE + offset] = weight
    return weights, np.array([1 - len(rule.required) for rule in rules], np.float32)
