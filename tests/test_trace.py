"""The trace format: what is written is read, what is wrong is refused in words, blobs are within their promise."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from heedful.errors import HeedfulError
from heedful.text.tokenizer import train
from heedful.trace import (
    Blob,
    LensStep,
    Piece,
    Sentence,
    Snapshot,
    SnapshotSentence,
    SnapshotSeries,
    Text,
    TraceDocument,
    TraceStep,
    Vectors,
    dump_trace,
    locate_pieces,
    numbers_blob,
    parse_trace,
    weights_blob,
)

SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, max_side=6)


@given(arrays.arrays(np.float64, SHAPES, elements=st.floats(0, 1)))
def test_a_weight_is_never_off_by_more_than_a_255th(array):
    blob = weights_blob(array)
    assert blob.shape == array.shape
    assert np.abs(blob.array() - array).max(initial=0.0) <= 1 / 255


@given(arrays.arrays(np.float64, SHAPES, elements=st.floats(-1e4, 1e4)), st.integers(5, 10))
def test_numbers_keep_their_digits(array, bits):
    found = numbers_blob(array, bits).array()
    assert np.all(
        np.abs(found - array) <= np.abs(array) * 2.0 ** -(bits + 1) + np.abs(array) * 2.0**-10 + 1e-7 * 2 ** (10 - bits)
    )


def test_what_is_not_a_number_becomes_the_lowest():
    assert numbers_blob(np.array([-np.inf, np.inf, 70_000.0, np.nan]), 7).array().tolist() == [-65504, 65504, 65504, 0]


def sentence(**changes):
    pieces = (Piece(text=" a", end=1, word=0), Piece(text="</s>"))
    whole = {
        "name": "m",
        "source": Text(text="a", pieces=pieces),
        "target": Text(text="b", pieces=pieces),
        "logp": -1.0,
        "score": -0.5,
        "steps": (TraceStep(logp=-0.5, entropy=1.0, top=((" a", -0.5),)),) * 2,
        "attention": {"cross": weights_blob(np.full((1, 2, 2, 2), 0.5))},
        "importance": {"cross": ((0.1, 0.2),)},
        "lens": ((LensStep(logp=-0.5, rank=0, top=((" a", -0.5),)),) * 2,),
        "neighbors": {"source": (((" b", 0.5),), ())},
        "contributions": {"erasure": numbers_blob(np.array([[0.5, -0.25], [1.5, 0.0]]))},
        "deletion": {"erasure": (-1.0, -2.5), "random": (-1.0, -2.0)},
    }
    return Sentence(**(whole | changes))


def test_what_is_written_is_read():
    film = SnapshotSeries(
        sources=(sentence().source,),
        frames=(
            Snapshot(
                step=5,
                takes=(SnapshotSentence(target=sentence().target, attention=weights_blob(np.zeros((1, 1, 2, 2)))),),
            ),
        ),
    )
    trace = TraceDocument(title="\u2028</script>", sentences=(sentence(),), film=film)
    again = parse_trace(dump_trace(trace))
    assert again.sentences == trace.sentences
    assert again.film == trace.film
    assert again.maker.startswith("heedful ")


def tree():
    return json.loads(dump_trace(TraceDocument(sentences=(sentence(),))))


def change(path, value):
    whole = tree()
    at = whole
    *places, last = path
    for key in places:
        at = at[key]
    at[last] = value
    return json.dumps(whole)


CROSS = ("sentences", 0, "attention", "cross")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"format": "heedful-trace", "version": NaN}', "not JSON"),
        ("[]", "not a trace"),
        ('{"format": "x"}', "not a trace"),
        (change(("version",), 2), "this trace has version 2; heedful .* reads version 1"),
        (change(("sentences", 0, "name"), 5), "sentences.0.name"),
        (change(("sentences", 0, "extra"), 5), "sentences.0.extra"),
        (change(("sentences", 0, "steps"), []), "0 steps for a target of 2 pieces"),
        (change((*CROSS, "shape"), [1, 2, 2, 3]), "shape"),
        (change((*CROSS, "shape"), [10**9, 10**9, 2, 2]), "larger than"),
        (change((*CROSS, "data"), "!!"), "not deflated base64"),
        (change((*CROSS, "data"), tree()["sentences"][0]["attention"]["cross"]["data"][:-8]), "holds|not deflated"),
        (change(("sentences", 0, "score"), -0.5).replace("-0.5", "-1e999"), "finite"),
        (change(("title",), "\ud800"), "not JSON"),
        (change(("sentences", 0, "reading"), {"layer": 9}), "reading.layer is 9"),
        (change(("sentences", 0, "vectors"), {"cross": []}), "0 layers, not 1"),
        (change((*CROSS, "data"), "QUJD"), "not deflated base64"),
        (change(("sentences", 0, "importance", "cross"), [[1.0]]), "importance.cross"),
        (change(("sentences", 0, "importance"), {"decoder": [[1.0]]}), "without attention.decoder"),
        (
            change(
                ("sentences", 0, "tree"),
                {"kind": "beam", "nodes": [{"step": 2, "text": "", "logp": 0, "total": 0, "rank": 0, "fate": "kept"}]},
            ),
            "node 0 is at step 2",
        ),
        (change(("sentences", 0, "tree"), {"kind": "beam", "best": 3}), "no node 3"),
        (change(("sentences", 0, "lens", 0), []), "layer 0 has 0 steps for a target of 2 pieces"),
        (change(("sentences", 0, "lens", 0, 0, "rank"), -1), "lens.0.0.rank"),
        (change(("sentences", 0, "neighbors", "source"), [[]]), "neighbors.source has 1 lists for 2 pieces"),
        (change(("sentences", 0, "neighbors", "middle"), []), "neighbors.middle"),
        (change(("sentences", 0, "contributions", "erasure", "shape"), [4, 1]), r"not \[2, 2\]"),
        (change(("sentences", 0, "deletion", "random"), [-1.0]), r"different lengths: \[1, 2\]"),
        (change(("sentences", 0, "deletion"), {"random": [-1.0]}), "has 1 values, not 2 to 3"),
        (change(("sentences", 0, "deletion"), {"random": [-1.0] * 4}), "has 4 values, not 2 to 3"),
    ],
)
def test_what_is_wrong_is_said(text, told):
    with pytest.raises(HeedfulError, match=told):
        parse_trace(text)


@pytest.mark.parametrize("key", ["normalizer", "normalize", "normalise"])
def test_the_normalizer_is_read_under_its_older_names_too(key):
    numbers = {name: numbers_blob(np.zeros((2, 2, 2))) for name in ("queries", "keys", "values", "scores")}
    vectors = {"cross": (Vectors(score="dot", normalizer="hard", **numbers),)}
    text = dump_trace(TraceDocument(sentences=(sentence(vectors=vectors),)))
    assert text.count('"normalizer":"hard"') == 1
    trace = parse_trace(text.replace('"normalizer"', f'"{key}"'))
    assert trace.sentences[0].vectors["cross"][0].normalizer == "hard"
    with pytest.raises(HeedfulError, match="normalizers"):
        parse_trace(text.replace('"normalizer"', '"normalizers"'))


def test_a_bomb_is_not_unpacked():
    small = weights_blob(np.zeros(10_000_000))
    with pytest.raises(ValueError, match="takes 4"):
        Blob(shape=(4,), kind="sqrt8", data=small.data)


# ---------------------------------------------------------------------------------------------------------- pieces

TEXTS = ["ein rotes Haus", "das alte Haus steht dort", "zwei rote Katzen"] * 20
TOKENIZER = train("bpe", TEXTS, vocab_size=300)


@given(st.text(st.sampled_from("eint rosHauc zw 犬🐶25é"), max_size=30).map(lambda text: " ".join(text.split())))
def test_pieces_know_their_places(text):
    (ids,) = TOKENIZER.encode([text])
    pieces = locate_pieces([*TOKENIZER.pieces(ids), "</s>"], text)
    assert len(pieces) == len(ids) + 1
    assert pieces[-1] == Piece(text="</s>", start=len(text), end=len(text))
    shown, letters = "", set()
    for piece in pieces[:-1]:
        assert 0 <= piece.start <= piece.end <= len(text)
        if piece.text.strip():
            assert text[piece.start : piece.end] == piece.text.strip()
        if piece.letter is None or piece.letter not in letters:
            shown += piece.text
            letters.add(piece.letter)
    assert shown.replace(" ", "") == text.replace(" ", "")
    words = [piece.word for piece in pieces[:-1]]
    assert words == sorted(words)
    assert set(words) == set(range(len(text.split())))
