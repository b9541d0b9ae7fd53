"""Alignments of CTC and of sampled attention: a trace records what the model computes, and the page shows it."""

import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import config
from heedful.build import build
from heedful.inspection.api import Page
from heedful.inspection.record import record_sentence
from heedful.nn.ctc import BLANK, best_alignment, forward_backward
from heedful.search import Beam
from heedful.trace import MIN_LOG_PROB, LatentAlignment, Sentence, TraceDocument, dump_trace, parse_trace, weights_blob
from support import synthetic_traces as synthetic
from support.browser_pages import axe_violations, click, opened, press, settled, visit
from support.inspection_models import SIZE, inspected, target_ids, tokenize

TEXT = "the old dog sees a red house"
ENCODER = {"kind": "recurrent", "width": 16}
ATTENTION = {"score": "content_location", "normalizer": "sampled"}
DECODERS = {
    "ctc": {"kind": "ctc", "upsample": 2},
    "sampled": {"kind": "recurrent", "width": 16, "attention": ATTENTION},
    "two heads": {"kind": "recurrent", "width": 16, "attention": {"score": "dot", "normalizer": "sampled", "heads": 2}},
    "soft": {"kind": "recurrent", "width": 16, "attention": {"score": "dot"}},
}
LAYOUT_CHECK = (Path(__file__).parents[1] / "support" / "layout_check.js").read_text(encoding="utf-8")
AXE = os.environ.get("HEEDFUL_AXE")
SOURCE, TARGET = synthetic.english(7), synthetic.english(5)
LATENT = {"ctc": synthetic.trellis_of(SOURCE, TARGET), "sampled": synthetic.drawn_slots_of(SOURCE, TARGET)}


def make_model(kind):
    torch.manual_seed(3)
    tree = {"width": 16, "tie_embeddings": "none", "encoder": ENCODER, "decoder": DECODERS[kind]}
    model = build(config.ModelSettings.model_validate(tree), SIZE, SIZE).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return model


def synthetic_sentence(kind, **changes):
    return synthetic.sentence_of(SOURCE, TARGET, layers=1, heads=1, latent=LATENT[kind], **changes)


# ---------------------------------------------------------------------------------------------------------- recorded


@pytest.mark.parametrize("labels", [(), (1,), (1, 1), (1, 2), (1, 2, 1)])
def test_the_best_alignment_is_the_best_of_all_paths(labels):
    torch.manual_seed(len(labels))
    slots, vocabulary = 4, 3
    log_probs = torch.randn(slots, vocabulary, dtype=torch.double).log_softmax(-1)
    states = [BLANK, *itertools.chain.from_iterable((label, BLANK) for label in labels)]
    path, log_prob = best_alignment(log_probs, torch.tensor(labels, dtype=torch.long))
    emissions = [states[state] for state in path]
    collapsed = tuple(label for label, _ in itertools.groupby(emissions) if label != BLANK)
    assert collapsed == labels
    assert sum(float(log_probs[slot, label]) for slot, label in enumerate(emissions)) == pytest.approx(log_prob)
    likelihoods = [
        sum(float(log_probs[slot, label]) for slot, label in enumerate(every))
        for every in itertools.product(range(vocabulary), repeat=slots)
        if tuple(label for label, _ in itertools.groupby(every) if label != BLANK) == labels
    ]
    assert log_prob == pytest.approx(max(likelihoods))


def test_labels_that_do_not_fit_have_no_alignment():
    assert best_alignment(torch.zeros(2, 3).log_softmax(-1), torch.tensor([1, 1]))[1] == -torch.inf


def test_a_trace_has_the_trellis_of_ctc():
    model = make_model("ctc")
    source = replace(tokenize(TEXT), max_length=40)  # more than there are slots, so the answer ends
    sentence = record_sentence(inspected(model), source, Beam(3), vectors=("cross",), importance=False)
    latent, slots = sentence.latent, len(sentence.source.pieces)
    posteriors = latent.probabilities.array()[0]
    assert posteriors.shape == (2 * len(sentence.target.pieces) - 1, 2 * slots)
    np.testing.assert_allclose(posteriors.sum(0), 1, atol=0.02)
    memory = model.encoder(torch.tensor([source.ids]), torch.ones(1, slots, dtype=torch.bool))
    log_probs, mask = model.decoder.slot_labels(memory)
    answer = torch.tensor([target_ids(sentence)[:-1]])
    alignments = forward_backward(log_probs.double(), mask, answer, torch.ones_like(answer, dtype=torch.bool))
    assert float(alignments.log_likelihood.detach()) == pytest.approx(sentence.logp, abs=1e-4)
    np.testing.assert_allclose(posteriors.T, alignments.posteriors[0].detach(), atol=5e-3)
    assert 0 < np.exp(latent.logps[0] - sentence.logp) <= 1  # the share of the best alignment
    too_long = record_sentence(
        inspected(model), tokenize("the dog"), Beam(1), forced_target=(5, 5) * 6, importance=False
    )
    assert too_long.latent is None
    assert too_long.logp == MIN_LOG_PROB
    compared = record_sentence(inspected(model), tokenize("the dog"), Beam(1), reference=(5, 5) * 6, importance=False)
    assert compared.reference.verdict == "model"


def test_the_total_of_an_answer_that_was_cut_off_is_that_of_its_labels():
    """log p of a prefix includes all longer answers, but an alignment is one of exactly these labels."""
    model, source = make_model("ctc"), replace(tokenize(TEXT), max_length=3)
    sentence = record_sentence(inspected(model), source, Beam(3), importance=False)
    labels = target_ids(sentence)
    assert len(labels) == 3  # no end token
    memory = model.encoder(torch.tensor([source.ids]), torch.ones(1, len(source.ids), dtype=torch.bool))
    log_probs, mask = model.decoder.slot_labels(memory)
    alignments = forward_backward(log_probs.double(), mask, torch.tensor([labels]), torch.ones(1, 3, dtype=torch.bool))
    assert sentence.latent.total == pytest.approx(float(alignments.log_likelihood.detach()), abs=1e-4)
    assert sentence.latent.logps[0] <= sentence.latent.total < sentence.logp


@pytest.mark.parametrize("kind", ["sampled", "two heads"])
def test_a_trace_has_the_slots_of_sampled_attention(kind):
    sentence = record_sentence(inspected(make_model(kind)), tokenize(TEXT), Beam(3))
    latent, attended = sentence.latent, sentence.attention["cross"].array()[0]
    probabilities = latent.probabilities.array()
    assert probabilities.shape == attended.shape
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=0.02)
    for head, path in enumerate(latent.paths):
        assert path == tuple(attended[head].argmax(-1))  # decode = "best" attends to the most probable slot
        chosen = probabilities[head][range(len(path)), list(path)]
        assert latent.logps[head] == pytest.approx(np.log(chosen).sum(), abs=0.1)
    assert record_sentence(inspected(make_model("soft")), tokenize(TEXT), Beam(3)).latent is None


@pytest.mark.parametrize("kind", LATENT)
def test_a_trace_is_read_as_it_was_written(kind):
    trace = TraceDocument(sentences=(synthetic_sentence(kind),))
    latent = parse_trace(dump_trace(trace)).sentences[0].latent
    assert latent == LATENT[kind].model_copy(update={"logps": latent.logps})
    assert latent.logps == pytest.approx(LATENT[kind].logps, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("ctc", {"probabilities": weights_blob(np.zeros((1, 4, 18)))}, r"not \[1, 11, a multiple of 9\]"),
        ("ctc", {"probabilities": weights_blob(np.zeros((1, 11, 17)))}, "latent.probabilities has shape"),
        ("sampled", {"probabilities": weights_blob(np.zeros((1, 6, 8)))}, r"not \[heads, 6, 9\]"),
        ("sampled", {"paths": ((0, 1, 2, 3, 4, 9),)}, "6 numbers below 9"),
        ("sampled", {"logps": ()}, "need 1 paths"),
    ],
)
def test_a_wrong_trace_is_explained(kind, changes, message):
    latent = LATENT[kind].model_dump() | changes
    with pytest.raises(ValueError, match=message):
        Sentence.model_validate(synthetic_sentence(kind).model_dump() | {"latent": latent})


# ------------------------------------------------------------------------------------------------------- in a browser

READ = """() => {
    const probability = document.querySelector("#alignment-readout [data-probability]");
    const labels = (side) => [...document.querySelectorAll(`.alignment .${side} .label`)];
    const now = (side) => labels(side).findIndex((node) => node.matches(".now"));
    return {
        probability: Number(probability.dataset.probability), row: now("left"), slot: now("top"),
        step: Number(document.querySelector("#stage [data-key=step]").value),
        circles: document.querySelectorAll(".alignment-path circle").length,
        points: document.querySelector(".alignment-path polyline")?.points.length ?? 0,
        share: Number(document.querySelector(".alignment-total").dataset.share),
    };
}"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", LATENT)
def test_the_panel_shows_the_cell_and_the_best_path(kind, chromium, tmp_path):
    sentence = synthetic_sentence(kind)
    probabilities = sentence.latent.probabilities.array()[0]
    page = Page(TraceDocument(sentences=(sentence,))).save(tmp_path / "page.html")
    with opened(chromium, page, "#lang=en&tab=alignment&step=3&slot=4") as tab:
        shown = tab.evaluate(READ)
        row, columns = (5, (6, 7)) if kind == "ctc" else (2, (3,))
        assert (shown["row"], shown["slot"], shown["step"]) == (row, 3, 2)
        assert shown["probability"] == pytest.approx(probabilities[row, list(columns)].max(), abs=1e-5)
        path = sentence.latent.paths[0]
        assert shown["circles"] == len(path)
        assert shown["points"] == (len(path) if kind == "ctc" else 0)
        total = sentence.logp if kind == "ctc" else 0.0
        assert shown["share"] == pytest.approx(np.exp(sentence.latent.logps[0] - total), abs=1e-3)
        tab.focus("[data-key=alignment]")
        press(tab, "ArrowRight", "ArrowDown")
        after = tab.evaluate(READ)
        assert (after["slot"], after["step"]) == (4, 3)
        box = tab.query_selector(".alignment canvas").bounding_box()
        tab.mouse.click(box["x"] + 2, box["y"] + box["height"] - 2)
        settled(tab)
        corner = tab.evaluate(READ)
        assert (corner["slot"], corner["step"]) == (0, len(sentence.target.pieces) - 1)
        for head in ("head=mean", "place=encoder"):
            visit(tab, f"#lang=en&tab=alignment&{head}")


@pytest.mark.slow
def test_the_tab_exists_only_with_alignments(chromium, tmp_path):
    plain, ctc = synthetic_sentence("ctc").model_copy(update={"latent": None}), synthetic_sentence("ctc")
    page = Page(TraceDocument(sentences=(plain, ctc))).save(tmp_path / "page.html")
    with opened(chromium, page, "#lang=en&tab=alignment") as tab:
        assert tab.get_attribute("#tab-body", "data-tab") == "next"
        assert tab.query_selector("#tab-alignment") is None
        visit(tab, "#lang=en&sentence=2")
        click(tab, "#tab-alignment")
        assert tab.get_attribute("#tab-body", "data-tab") == "alignment"
        press(tab, "5")
        assert tab.get_attribute("#tab-body", "data-tab") == "search"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 800, "light"), (1920, 1080, "projector"), (390, 844, "dark")])
def test_nothing_overlaps_and_axe_finds_no_violation(size, chromium, tmp_path):
    width, height, theme = size
    long = synthetic.english(40)
    sentences = [
        *map(synthetic_sentence, LATENT),
        synthetic.sentence_of(long, long, layers=1, heads=2, latent=synthetic.trellis_of(long, long)),
        synthetic.sentence_of(long, TARGET, layers=1, heads=2, latent=synthetic.drawn_slots_of(long, TARGET, 2)),
    ]
    page = Page(TraceDocument(sentences=tuple(sentences))).save(tmp_path / "page.html")
    problems = []
    with opened(chromium, page, f"#theme={theme}", width=width, height=height, bypass_csp=True) as tab:
        for number, language in itertools.product(range(1, 5), ("en", "pt", "ru")):
            visit(tab, f"#theme={theme}&lang={language}&sentence={number}&tab=alignment")
            problems += [(number, language, problem) for problem in tab.evaluate(LAYOUT_CHECK)]
        if AXE:
            problems += axe_violations(tab, Path(AXE))
    assert problems == []


def test_the_two_kinds_are_those_of_the_trace():
    kinds = LatentAlignment.model_fields["kind"].annotation.__args__
    assert set(kinds) == set(LATENT)
