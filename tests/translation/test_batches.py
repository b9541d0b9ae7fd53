"""A translation does not depend on the sentences it is batched with, for every engine."""

import gzip
import random

import numpy as np
import pytest

import heedful
from heedful import samples

# Engine -> alignment: some exports have only the mean of all heads, or no attention.
ALIGNMENTS = {"torch": "best", "ctranslate2": "best", "onnx": "naive", "hugging_face": None}
SENTENCES = gzip.decompress((samples.sample_folder("pt-en") / "test.pt.gz").read_bytes()).decode().splitlines()[:40]


@pytest.fixture(scope="module", params=ALIGNMENTS)
def translator(request, tmp_path_factory):
    """The Portuguese-English sample with each engine."""
    model = samples.model("pt-en")
    if request.param == "torch":
        return heedful.load(model, threads=1)
    export = tmp_path_factory.mktemp("exports") / request.param
    heedful.export(model, export, to=request.param, probes=SENTENCES[:10])
    return heedful.load(export, threads=1)


SEARCHES = (
    {"beam": 1},
    {"beam": 4},
    {"beam": 4, "num_best": 3},
    {"beam": 4, "suppress_words": ["the", "is"]},  # about half of the sentences
)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_text_scores_links_and_weights_are_the_same_in_any_batch(translator, search):
    alignment = ALIGNMENTS[translator.engine.name]
    options = {**search, "alignment": alignment, "soft_alignment": alignment is not None}
    alone = {sentence: translator([sentence], **options)[0] for sentence in SENTENCES}
    draw = random.Random(1)
    for size in (7, len(SENTENCES)):
        for translation in translator(draw.sample(SENTENCES, size), **options):
            expected = alone[translation.source]
            for ours, theirs in zip(
                (translation, *translation.alternatives), (expected, *expected.alternatives), strict=True
            ):
                assert ours.text == theirs.text
                assert ours.score == pytest.approx(theirs.score, abs=1e-4)
                assert ours.alignment == theirs.alignment
                if alignment:
                    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-3)
