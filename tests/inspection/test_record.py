"""What a trace says is what PyTorch computes, for every kind of model."""

import math

import numpy as np
import pytest
import torch

from heedful import config, inspect, load
from heedful.inspection.hugging_face import wrap_hugging_face
from heedful.inspection.record import InspectedSource, record_sentence
from heedful.nn.contract import Look
from heedful.search import Beam, Greedy
from heedful.trace import TraceDocument, dump_trace, parse_trace
from support.inspection_models import (
    BOS,
    EOS,
    MODELS,
    built,
    force_target,
    inspected,
    marian,
    record_arabic,
    student,
    target_ids,
    tokenize,
)
from test_bundle import made

TEXT = "the old dog sees a red house"
PLACES = ("encoder", "cross", "decoder")


@pytest.mark.parametrize("kind", MODELS)
def test_probabilities_and_maps_are_the_models_own(kind):
    model = built(kind)
    found = record_sentence(inspected(model), tokenize(TEXT), Beam(3), vectors=PLACES)
    gold = target_ids(found)
    log_probs, encoded, decoded = force_target(model, TEXT, gold)
    for row, step in enumerate(found.steps):
        assert step.logp == pytest.approx(float(log_probs[row, gold[row]]), abs=1e-4)
        assert step.entropy == pytest.approx(float(-(log_probs[row].exp() * log_probs[row]).sum()), abs=1e-4)
        assert [logp for _, logp in step.top] == sorted((logp for _, logp in step.top), reverse=True)
        assert step.top[0][1] == pytest.approx(float(log_probs[row].max()), abs=1e-4)
    assert found.logp == pytest.approx(sum(step.logp for step in found.steps), abs=1e-3)
    for place, maps in (("encoder", encoded), ("cross", decoded), ("decoder", decoded)):
        layers = getattr(maps, place) if maps else ()
        assert (place in found.attention) == bool(layers)
        if layers:
            real = torch.stack([one.weights[0] for one in layers]).detach().numpy()
            assert np.abs(found.attention[place].array() - real).max() <= 1 / 255


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "rnn-bottleneck"])
def test_scores_can_be_made_from_the_vectors(kind):
    found = record_sentence(inspected(built(kind)), tokenize(TEXT), Greedy(), vectors=("cross",))
    (layer, *_) = found.vectors["cross"]
    queries, keys, scores = (part.array() for part in (layer.queries, layer.keys, layer.scores))
    if layer.energy is None:
        made = np.einsum("htd,hsd->hts", queries, keys) / (
            math.sqrt(queries.shape[-1]) if layer.score == "scaled_dot" else 1
        )
    else:
        moved = layer.moved.array() if layer.moved else 0.0
        made = np.tanh(queries[:, :, None] + keys[:, None] + moved) @ layer.energy.array()
    real = scores > -60000
    assert np.abs(made - scores)[real].max() < 0.02 * max(1.0, np.abs(scores[real]).max())  # 7 bits of every number


def test_the_tree_is_the_search():
    model = built("transformer")
    found = record_sentence(inspected(model), tokenize(TEXT), Beam(3))
    tree = found.tree
    assert {node.fate for node in tree.nodes} >= {"kept", "pruned"}
    best, path = tree.best, []
    while best is not None:
        path.append(tree.nodes[best])
        best = tree.nodes[best].parent
    said = "".join(node.text for node in reversed(path) if node.text != "</s>").strip()
    assert said == found.target.text
    assert tree.nodes[tree.best].score == pytest.approx(found.score, abs=1e-4)
    assert tree.greedy == record_sentence(inspected(model), tokenize(TEXT), Greedy()).target.text


@pytest.mark.parametrize("kind", ["transformer", "lstm-bahdanau"])
def test_importance_is_what_silencing_costs(kind):
    model = built(kind)
    found = record_sentence(inspected(model), tokenize(TEXT), Greedy())
    gold = target_ids(found)
    tokens = torch.tensor([tokenize(TEXT).ids])
    memory = model.encoder(tokens, torch.ones_like(tokens, dtype=torch.bool))
    silent = Look(frozenset(), frozenset({("cross", 0, 0)}))
    with torch.inference_mode():
        decoded, _ = model.decoder(torch.tensor([[BOS, *gold[:-1]]]), model.decoder.start(memory), silent)
        log_probs = model.decoder.project(decoded.states)[0].log_softmax(-1)
    without = float(log_probs.gather(1, torch.tensor(gold).unsqueeze(1)).sum())
    assert found.importance["cross"][0][0] == pytest.approx(found.logp - without, abs=1e-3)


def test_a_reference_is_judged():
    model = built("transformer")
    own = record_sentence(inspected(model), tokenize(TEXT), Beam(3))
    said = [one for one in target_ids(own) if one != EOS]
    assert record_sentence(inspected(model), tokenize(TEXT), Beam(3), reference=said).reference.verdict == "same"
    other = record_sentence(inspected(model), tokenize(TEXT), Beam(3), reference=[4, 5, 6, 4, 5, 6])
    assert other.reference.verdict == ("search" if other.reference.score > own.score else "model")
    given = record_sentence(inspected(model), tokenize(TEXT), Beam(3), forced_target=[4, 5, 6])
    assert [piece.text for piece in given.target.pieces] == [" a", " red", " house", "</s>"]
    assert all(step.forced for step in given.steps)


def test_a_students_model():
    found = record_sentence(inspected(student(), can_silence_heads=False), tokenize(TEXT), Beam(4), vectors=("cross",))
    assert set(found.attention) == {"cross"}
    assert found.importance == {}
    assert found.vectors == {}


def test_a_hugging_face_model_says_the_same_as_by_itself():
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'heedful[dev]'")
    model = marian()
    looked = wrap_hugging_face(model)
    question = InspectedSource((*range(4, 9), EOS), "4 5 6 7 8", max_length=10)
    found = record_sentence(looked, question, Greedy())
    said = [int(piece.text) if piece.text.strip() != str(EOS) else EOS for piece in found.target.pieces]
    inputs = torch.tensor([[model.config.decoder_start_token_id, *said[:-1]]])
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([question.ids]), decoder_input_ids=inputs, output_attentions=True)
    log_probs = out.logits[0].log_softmax(-1)
    assert [step.logp for step in found.steps] == pytest.approx(
        log_probs.gather(1, torch.tensor(said).unsqueeze(1)).squeeze(1).tolist(), abs=1e-4
    )
    for place, maps in (
        ("encoder", out.encoder_attentions),
        ("cross", out.cross_attentions),
        ("decoder", out.decoder_attentions),
    ):
        assert np.abs(found.attention[place].array() - torch.stack(maps)[:, 0].numpy()).max() <= 1 / 255


def test_t5_as_well():
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install 'heedful[dev]'"
    )
    torch.manual_seed(1)
    options = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 20}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**options, decoder_start_token_id=0)).eval()
    found = record_sentence(wrap_hugging_face(model), InspectedSource((5, 6, 7, 1), "5 6 7", max_length=6), Greedy())
    said = [int(piece.text) for piece in found.target.pieces]
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([[5, 6, 7, 1]]), decoder_input_ids=torch.tensor([[0, *said[:-1]]]))
    log_probs = out.logits[0].log_softmax(-1).gather(1, torch.tensor(said).unsqueeze(1)).squeeze(1)
    assert [step.logp for step in found.steps] == pytest.approx(log_probs.tolist(), abs=1e-4)


def test_ctranslate2_tells_what_it_can():
    sentence, line = record_arabic()
    assert sentence.target.text == line[2]
    assert sentence.score == pytest.approx(float(line[3]), abs=1e-4)
    assert sentence.logp / len(sentence.steps) == pytest.approx(sentence.score, abs=1e-4)
    assert sentence.attention["cross"].shape == (1, 1, len(line[2]) + 1, len(line[0]))


@pytest.mark.parametrize("kind", MODELS)
def test_a_trace_is_read_as_it_was_written(kind):
    trace = TraceDocument(
        title="x", sentences=(record_sentence(inspected(built(kind)), tokenize(TEXT), Beam(2), vectors=PLACES),)
    )
    again = parse_trace(dump_trace(trace))
    assert dump_trace(again) == dump_trace(trace)
    assert again.sentences[0].target == trace.sentences[0].target


def test_an_inspected_answer_has_no_token_that_translations_never_have(tmp_path):
    """Weights are random, so the start token and padding are as probable as other tokens."""
    translator = load(
        made(tmp_path / "model", "characters", config.ModelSettings.model_validate(MODELS["hard"])).folder
    )
    for text in ("abc", "cab", "a b c", "ccc", "bacab", "b", "c a", "abacus"):
        (sentence,) = inspect(translator, text, importance=False, evidence=False).trace.sentences
        assert not {"<pad>", "<s>"} & {piece.text.strip() for piece in sentence.target.pieces}
        assert sentence.target.text == translator(text).text
