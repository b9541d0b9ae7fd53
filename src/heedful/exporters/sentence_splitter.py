"""Where sentences end, by rules, as an ONNX network that MiniSBD runs: Argos Translate asks it before each translation.

    Path("rules.onnx").write_bytes(splitter("en"))
    minisbd.SBDetect("rules.onnx").sentences("Dr. Who? Yes.")        # ["Dr. Who?", "Yes."]

MiniSBD numbers characters by a vocabulary that lies in the file, adds what Python's `str` knows of each (is it a
capital? a digit?) and asks for every place: nothing (0), the end of a word (1) or the end of a sentence (2)? Here the
number of a character tells its kinds, and a rule is a neuron: it fires when all that it wants around a place is there
and nothing of what it forbids. Nothing was learned, so nothing can go astray, and no file need be fetched.
"""

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.exporters.protobuf import field, fields
from heedful.text.segments import CLOSERS, ENDS, WIDE_ENDS

Array = NDArray[np.float32]
Wanted = tuple[tuple[int, str], ...]  # (how far from the place, kind of character)

LETTERS = range(0x600)  # of these we know which are small: no later script has small letters, to speak of
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
BETWEEN = frozenset(" ." + OPENERS)  # before the first letter of a word
FEATURES = {"capital": "capitalized", "digit": "numeric"}  # MiniSBD's names
CHANNELS = [*KINDS, "inner", *FEATURES]
BEFORE, AFTER = 4, 2  # characters that a rule can see
MOST = 1000  # characters in one go; MiniSBD's own least
FLOAT, INT64 = 1, 7  # ONNX's numbers of types


@dataclass(frozen=True)
class Rule:
    """What must be there, and what must not."""

    wanted: Wanted
    forbidden: Wanted = ()


FOLLOWED: Wanted = ((1, "space"),)
SMALL: Wanted = ((2, "small"),)
ENDINGS = (
    Rule(((0, "end"), *FOLLOWED), SMALL),
    Rule(((-1, "end"), (0, "closer"), *FOLLOWED), SMALL),
    Rule(((-2, "end"), (-1, "closer"), (0, "closer"), *FOLLOWED), SMALL),
    Rule(((0, "wide"),), ((1, "wide"), (1, "closer"))),
    Rule(((-1, "wide"), (0, "closer")), ((1, "closer"),)),
)
SHORT = (  # J. Smith, z. B., U.S. -- St. Petersburg, Dr. Who -- am 31. Mai -- Mrs. Smith, bzw. Frau Schmidt
    Rule(((-1, "inner"), (0, "stop")), ((-2, "inner"),)),
    Rule(((-2, "capital"), (-1, "inner"), (0, "stop")), ((-3, "inner"),)),
    Rule(((-2, "digit"), (-1, "inner"), (0, "stop")), ((-3, "inner"),)),
    Rule((*((place, "consonant") for place in (-3, -2, -1)), (0, "stop")), ((-4, "inner"),)),
)


def splitter(language: str) -> bytes:
    """The file; of the language it bears no more than the name."""
    listed = sorted(frozenset().union(*KINDS.values(), BETWEEN))
    units = ["<PAD>", "<UNK>", *listed]
    vocabulary = {
        "lang": language, "idx": 0, "cutoff": 0, "lower": False,
        "_unit2id": {unit: number for number, unit in enumerate(units)}, "_id2unit": units,
    }  # fmt: skip
    config = {"feat_funcs": list(FEATURES.values()), "max_seqlen": MOST, "batch_size": 1}
    notes = {"lang_code": language, "config": json.dumps(config), "vocab": json.dumps(vocabulary)}
    return b"".join(
        [
            field(1, 8),  # of the format: what ONNX Runtime 1.10 reads
            field(2, "heedful"),
            field(7, graph(units)),
            field(8, field(1, "") + field(2, 13)),  # of the operators
            *(field(14, field(1, name) + field(2, text)) for name, text in notes.items()),
        ]
    )


def graph(units: list[str]) -> bytes:
    """units [B, S], features [B, S, 2] -> verdicts [B, S, 3]."""
    kinds = np.array([kinds_of(unit) for unit in units], np.float32)
    weights, biases = neurons((*ENDINGS, *SHORT))
    votes = np.zeros((3, len(biases), 1), np.float32)
    votes[2, :, 0] = [1.0] * len(ENDINGS) + [-float(len(ENDINGS))] * len(SHORT)
    start = np.array([0.5, -1.0, 0.0], np.float32)  # nothing, unless a rule fires; words are nobody's concern
    turn = attribute("perm", [0, 2, 1])
    return b"".join(
        [
            node("Gather", ["kinds", "units"], "seen"),
            node("Concat", ["seen", "features"], "known", attribute("axis", 2)),
            node("Transpose", ["known"], "rows", turn),
            node("Conv", ["rows", "weights", "biases"], "heard", attribute("pads", [BEFORE, AFTER])),
            node("Relu", ["heard"], "fired"),
            node("Conv", ["fired", "votes", "start"], "sums"),
            node("Transpose", ["sums"], "verdicts", turn),
            field(2, "sentences"),
            *(
                field(5, tensor(name, array))
                for name, array in (
                    *(("kinds", kinds), ("weights", weights), ("biases", biases)),
                    *(("votes", votes), ("start", start)),
                )
            ),
            field(11, value("units", INT64, ["rows", "places"])),
            field(11, value("features", FLOAT, ["rows", "places", len(FEATURES)])),
            field(12, value("verdicts", FLOAT, ["rows", "places", 3])),
        ]
    )


def kinds_of(unit: str) -> list[bool]:
    """Of a character, or of <UNK>: any other; of <PAD>, nothing."""
    return [*(unit in kind for kind in KINDS.values()), unit != "<PAD>" and unit not in BETWEEN]


def neurons(rules: tuple[Rule, ...]) -> tuple[Array, Array]:
    """weights [rules, channels, window] and biases: 1 where a rule holds, 0 or less where it does not."""
    weights = np.zeros((len(rules), len(CHANNELS), BEFORE + 1 + AFTER), np.float32)
    for row, rule in enumerate(rules):
        for weight, some in ((1.0, rule.wanted), (-1.0, rule.forbidden)):
            for place, kind in some:
                weights[row, CHANNELS.index(kind), BEFORE + place] = weight
    return weights, np.array([1 - len(rule.wanted) for rule in rules], np.float32)


# ------------------------------------------------------------------------------------------- ONNX's messages, by number


def node(kind: str, inputs: list[str], output: str, *attributes: bytes) -> bytes:
    """An operator at work, as a field of a graph."""
    return field(1, fields(1, inputs) + field(2, output) + field(4, kind) + fields(5, list(attributes)))


def attribute(name: str, value: int | list[int]) -> bytes:
    """One or several whole numbers."""
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + fields(8, value) + field(20, 7)


def tensor(name: str, array: Array) -> bytes:
    """Weights."""
    return fields(1, list(array.shape)) + field(2, FLOAT) + field(8, name) + field(9, array.astype("<f4").tobytes())


def value(name: str, kind: int, shape: list[str | int]) -> bytes:
    """What goes in or comes out; a size that is not known has a name."""
    sizes = b"".join(field(1, field(1 if isinstance(size, int) else 2, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, sizes)))
