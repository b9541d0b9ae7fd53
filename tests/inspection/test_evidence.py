"""What the evidence says is what separate passes of the model compute, for every kind of model."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import heedful
from heedful import config
from heedful.build import build
from heedful.inspection import evidence
from heedful.inspection.api import mask_words
from heedful.inspection.evidence import AnswerScorer, deletion_curves, find_table, gradient_contributions
from heedful.inspection.hugging_face import wrap_hugging_face
from heedful.inspection.record import InspectedModel, InspectedSource, record_sentence
from heedful.nn.contract import Decoded, Map, Maps, Memory, State
from heedful.search import Beam, Greedy
from heedful.trace import TraceAlignment, TraceDocument, dump_trace, parse_trace
from heedful.translation.translator import TranslationOptions
from support import inspection_models
from support.inspection_models import (
    BOS,
    EOS,
    LAYER,
    MODELS,
    SIZE,
    UNK,
    WORDS,
    built,
    inspected,
    marian,
    pieces,
    student,
    tokenize,
)

TEXT = "the old dog sees a red house"
SOURCE = tokenize(TEXT).ids
POST_NORM = {**LAYER, "norm": "post"}
KINDS = [*MODELS, "post-norm"]
TRANSFORMERS = ["transformer-tiny", "transformer", "post-norm"]
KEYS = ("lens", "neighbors", "contributions", "deletion")


@pytest.fixture(autouse=True)
def _post_norm(monkeypatch):
    layers = {"encoder": POST_NORM, "decoder": POST_NORM}
    model = {"width": 16, "positions": "sinusoidal", **layers}
    monkeypatch.setitem(inspection_models.MODELS, "post-norm", model)


def record(model, *, unk=UNK, alignment=None, source=None):
    source = source or tokenize(TEXT)
    return record_sentence(inspected(model, unk=unk), source, Greedy(), evidence=True, alignment=alignment)


def ids_of(sentence):
    return [WORDS.index(piece.text.replace(" ", "▁")) for piece in sentence.target.pieces]


def scorer_of(model, target, unk=UNK):
    return AnswerScorer(model.encoder, model.decoder, BOS, unk, SOURCE, tuple(target), torch.device("cpu"))


@torch.inference_mode()
def forced(encoder, decoder, source, target, mask=None):
    """log p [T, V] of one source, in a pass of its own; `mask` hides slots of the memory."""
    tokens = torch.tensor([source])
    memory = encoder(tokens, torch.ones_like(tokens, dtype=torch.bool))
    if mask is not None:
        memory = replace(memory, mask=torch.tensor([mask]))
    decoded, _ = decoder(torch.tensor([[BOS, *target[:-1]]]), decoder.start(memory))
    return decoder.project(decoded.states[0]).log_softmax(-1)


def log_probs_of(encoder, decoder, source, target, mask=None):
    return forced(encoder, decoder, source, target, mask)[range(len(target)), target].numpy()


# ------------------------------------------------------------------------------------------------------ the logit lens


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_the_last_layer_of_the_lens_is_the_model_and_the_others_are_shorter_models(kind):
    model = built(kind)
    sentence = record(model)
    target = ids_of(sentence)
    assert len(sentence.lens) == len(model.decoder.layers)
    for step, lens_step in zip(sentence.steps, sentence.lens[-1], strict=True):
        assert lens_step.logp == pytest.approx(step.logp, abs=2e-4)
        assert [text for text, _ in lens_step.top] == [text for text, _ in step.top[:3]]
        assert [logp for _, logp in lens_step.top] == pytest.approx([logp for _, logp in step.top[:3]], abs=2e-4)
    for count, layer in enumerate(sentence.lens, 1):
        shorter = copy.deepcopy(model.decoder)
        shorter.layers = shorter.layers[:count]
        log_probs = forced(model.encoder, shorter, SOURCE, target)
        for row, (lens_step, token) in enumerate(zip(layer, target, strict=True)):
            assert lens_step.logp == pytest.approx(float(log_probs[row, token]), abs=2e-4)
            assert lens_step.rank == log_probs[row].argsort(descending=True).tolist().index(token)
    assert sentence.lens[0] != sentence.lens[-1]


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in TRANSFORMERS])
def test_recurrent_decoders_have_no_lens(kind):
    assert record(built(kind)).lens == ()


# ---------------------------------------------------------------------------------------------------------- neighbors


@pytest.mark.parametrize("kind", KINDS)
def test_neighbors_have_the_largest_cosines(kind):
    model = built(kind)
    sentence = record(model)
    sides = {"source": (model.encoder, SOURCE), "target": (model.decoder, ids_of(sentence))}
    for side, (part, ids) in sides.items():
        table = find_table(part, ids).weight.detach().numpy()
        unit = table / np.linalg.norm(table, axis=1, keepdims=True)
        assert len(sentence.neighbors[side]) == len(ids)
        for token, nearest in zip(ids, sentence.neighbors[side], strict=True):
            cosines = {other: float(unit[token] @ unit[other]) for other in range(SIZE) if other != token}
            best = sorted(cosines, key=lambda other: -cosines[other])[:5]
            assert [text for text, _ in nearest] == [WORDS[other].replace("▁", " ") for other in best]
            assert [cosine for _, cosine in nearest] == pytest.approx([cosines[other] for other in best], abs=1e-4)


def test_a_piece_with_the_same_vector_is_the_nearest():
    model = built("transformer")
    table = find_table(model.encoder, SOURCE)
    old, red = WORDS.index("▁old"), WORDS.index("▁red")
    with torch.no_grad():
        table.weight[red] = 3 * table.weight[old]
    sentence = record(model)
    assert sentence.neighbors["source"][SOURCE.index(old)][0] == (" red", pytest.approx(1.0, abs=1e-4))


def test_a_table_with_unnamed_rows_or_one_of_two_tables_gives_no_neighbors():
    torch.manual_seed(1)
    large = inspection_models.Student(words=SIZE + 50).eval()
    with torch.no_grad():
        large.decoder.output.bias[SIZE:] = -1e9  # the rows without a name are never predicted
    assert record(large).neighbors == {}
    two_tables = student()
    two_tables.encoder.extra = nn.Embedding(3, 4)
    sentence = record(two_tables)
    assert set(sentence.neighbors) == {"target"}
    assert set(sentence.contributions) == {"erasure"}


def test_neighbors_that_a_model_may_not_use_are_masked():
    translator = heedful.load("pt-en")
    sentence = heedful.inspect(translator, "Bom dia.", importance=False).trace.sentences[0]
    rude = ((" asshole", 0.5), (" good", 0.25))
    neighbors = {"target": (rude,) * len(sentence.target.pieces)}
    masked = mask_words(sentence.model_copy(update={"neighbors": neighbors}), translator)
    assert masked.neighbors["target"][0] == ((" ***", 0.5), (" good", 0.25))


# ------------------------------------------------------------------------------------------------------ contributions


@pytest.mark.parametrize("kind", KINDS)
def test_erasure_is_what_a_pass_with_the_piece_replaced_loses(kind):
    model = built(kind)
    sentence = record(model)
    target = ids_of(sentence)
    whole = log_probs_of(model.encoder, model.decoder, SOURCE, target)
    erasure = sentence.contributions["erasure"].array()
    assert erasure.shape == (len(target), len(SOURCE))
    for slot in range(len(SOURCE)):
        erased = [*SOURCE[:slot], UNK, *SOURCE[slot + 1 :]]
        without = log_probs_of(model.encoder, model.decoder, erased, target)
        assert erasure[:, slot] == pytest.approx(whole - without, abs=1e-3, rel=2e-3)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "rnn-bottleneck"])
def test_without_an_unknown_piece_the_slot_is_masked(kind):
    model = built(kind)
    sentence = record(model, unk=None)
    target = ids_of(sentence)
    whole = log_probs_of(model.encoder, model.decoder, SOURCE, target)
    erasure = sentence.contributions["erasure"].array()
    for slot in range(len(SOURCE)):
        mask = [other != slot for other in range(len(SOURCE))]
        without = log_probs_of(model.encoder, model.decoder, SOURCE, target, mask)
        assert erasure[:, slot] == pytest.approx(whole - without, abs=1e-3, rel=2e-3)


def test_a_bottleneck_without_an_unknown_piece_has_no_erasure():
    sentence = record(built("rnn-bottleneck"), unk=None)
    assert set(sentence.contributions) == {"gradients"}
    assert sentence.deletion == {}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hard"])
def test_integrated_gradients_add_up_to_what_the_source_changes(kind):
    model = built(kind)
    sentence = record(model)
    target = ids_of(sentence)
    blank = copy.deepcopy(model.encoder)
    nn.init.zeros_(find_table(blank, SOURCE).weight)
    whole = log_probs_of(model.encoder, model.decoder, SOURCE, target)
    baseline = log_probs_of(blank, model.decoder, SOURCE, target)
    difference = whole - baseline
    sums = sentence.contributions["gradients"].array().sum(1)
    assert np.abs(sums - difference).max() <= 0.1 * np.abs(difference).max()


def test_gradients_that_do_not_add_up_are_left_out(monkeypatch):
    assert "gradients" not in record(built("hard")).contributions
    model = heedful.load("pt-en")
    for numbers, has_gradients in (((1,), False), ((32, 64, 128), True)):
        monkeypatch.setattr(evidence, "NUM_INTERVALS", numbers)
        (sentence,) = heedful.inspect(model, "Eu gosto muito de café.", importance=False).trace.sentences
        assert ("gradients" in sentence.contributions) == has_gradients
        assert "erasure" in sentence.contributions


@pytest.mark.parametrize("kind", ["transformer", "lstm-bahdanau"])
def test_contributions_to_groups_of_steps_are_sums(kind):
    model = built(kind)
    scorer = scorer_of(model, ids_of(record(model)))
    table = find_table(model.encoder, SOURCE)
    single, grouped = (
        gradient_contributions(scorer, table, step_groups=groups) for groups in (None, [range(3), range(12)])
    )
    assert np.abs(grouped - np.stack((single[:3].sum(0), single.sum(0)))).max() < 1e-4


def test_a_model_without_gradients_lacks_only_them():
    class WithoutGradients(inspection_models.StudentEncoder):
        forward = torch.no_grad()(inspection_models.StudentEncoder.forward)

    model = student()
    torch.manual_seed(1)
    model.encoder = WithoutGradients(SIZE, 16).eval()
    sentence = record(model)
    assert set(sentence.contributions) == {"erasure"}
    assert set(sentence.deletion) == {"erasure", "attention", "random"}


def test_gradients_leave_the_model_as_it_was():
    model = built("transformer")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    record(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


# ------------------------------------------------------------------------------------------------------------ deletion


@pytest.mark.parametrize("kind", KINDS)
def test_deletion_curves_begin_with_the_answer_and_end_without_any_piece(kind):
    model = built(kind)
    sentence = record(model, alignment=TraceAlignment(layer=0, head=0))
    target = ids_of(sentence)
    expected = {"erasure", "gradients", "attention", "head", "random"}
    expected -= {"gradients"} if kind == "hard" else {"attention", "head"} if kind == "rnn-bottleneck" else set()
    assert set(sentence.deletion) == expected
    empty = [*([UNK] * (len(SOURCE) - 1)), EOS]
    last = log_probs_of(model.encoder, model.decoder, empty, target).sum()
    for curve in sentence.deletion.values():
        assert len(curve) == len(SOURCE)  # the end token is never erased
        assert curve[0] == pytest.approx(sentence.logp, abs=1e-3)
        assert curve[-1] == pytest.approx(last, abs=1e-3)


@pytest.mark.parametrize("kind", ["transformer", "lstm-bahdanau"])
def test_pieces_are_erased_in_the_order_of_their_importance(kind):
    model = built(kind)
    alignment = TraceAlignment(step="naive", layer=0, head=0)
    sentence = record(model, alignment=alignment)
    target = ids_of(sentence)
    weights = sentence.attention["cross"].array()
    importance = {name: blob.array().sum(0) for name, blob in sentence.contributions.items()}
    importance |= {"attention": weights.mean((0, 1)).sum(0), "head": weights[0, 0].sum(0)}
    for name, values in importance.items():
        order = sorted(range(len(SOURCE) - 1), key=lambda slot: -values[slot])
        for count in (1, 3):
            erased = [UNK if slot in order[:count] else token for slot, token in enumerate(SOURCE)]
            without = log_probs_of(model.encoder, model.decoder, erased, target).sum()
            assert sentence.deletion[name][count] == pytest.approx(without, abs=1e-3)
    singles = [
        log_probs_of(model.encoder, model.decoder, [*SOURCE[:slot], UNK, *SOURCE[slot + 1 :]], target).sum()
        for slot in range(len(SOURCE) - 1)
    ]
    assert sentence.deletion["erasure"][1] == pytest.approx(min(singles), abs=1e-3)


def test_random_orders_are_averaged_and_the_same_every_time():
    model = built("transformer")
    target = ids_of(record(model))
    curves = [deletion_curves(scorer_of(model, target), {}, range(7), num_random_orders=3) for _ in range(2)]
    assert curves[0] == curves[1]
    generator = np.random.default_rng(1)
    orders = [generator.permutation(range(7)).tolist() for _ in range(3)]
    erased = [[UNK if slot in order[:2] else token for slot, token in enumerate(SOURCE)] for order in orders]
    totals = [log_probs_of(model.encoder, model.decoder, source, target).sum() for source in erased]
    assert curves[0]["random"][2] == pytest.approx(np.mean(totals), abs=1e-3)


def test_curves_of_long_sources_are_capped_and_tags_stay():
    text = " ".join(["the old dog sees a red house"] * 4)
    source = replace(tokenize(text), num_tags=2)
    sentence = record(built("transformer"), source=source)
    assert {len(curve) for curve in sentence.deletion.values()} == {21}
    short = InspectedSource((4, 5, EOS), "a red", num_tags=1)
    assert {len(curve) for curve in record(built("transformer"), source=short).deletion.values()} == {2}
    assert record(built("transformer"), source=InspectedSource((EOS,), "")).deletion == {}


# ------------------------------------------------------------------------------------------------------ planted models


class CopyEncoder(nn.Module):
    """The embedding of a piece is one-hot; pieces further right have a stronger signal."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.eye(SIZE))

    def forward(self, tokens, mask, look=None):
        strength = 2.0 + torch.arange(tokens.size(1)).float()
        return Memory(self.table(tokens) * strength.unsqueeze(-1), mask)


class CopyDecoder(nn.Module):
    """Step t copies slot t, but its attention map shows that it attends to the first slot."""

    def start(self, memory):
        return State((memory.states, memory.mask), torch.zeros(memory.mask.size(0), 1))

    def forward(self, tokens, state, look=None):
        (states, mask), count = state.source, tokens.size(1)
        first = int(state.past[0, 0])
        weights = torch.zeros(tokens.size(0), 1, count, mask.size(1))
        weights[..., 0] = 1.0
        maps = Maps(cross=(Map(weights=weights),)) if look else None
        slots = torch.arange(first, first + count).clamp(max=mask.size(1) - 1)
        return Decoded(states[:, slots], maps), State(state.source, state.past + count)

    def project(self, states):
        return states


def test_copying_depends_on_the_piece_that_is_copied_whatever_attention_shows():
    names = InspectedModel(
        CopyEncoder(), CopyDecoder(), BOS, EOS, pieces, pieces, inspection_models.detokenize, unk=UNK
    )
    sentence = record_sentence(names, tokenize(TEXT), Greedy(), evidence=True)
    assert sentence.target.text == TEXT
    for blob in sentence.contributions.values():
        array = blob.array()
        assert array.argmax(1).tolist() == list(range(len(SOURCE)))
        assert np.abs(array - np.diag(np.diag(array))).max() < 1e-3
    slots = len(SOURCE) - 1
    erased = [[*(token if slot < k else UNK for slot, token in enumerate(SOURCE[:-1])), EOS] for k in range(slots)]
    totals = [log_probs_of(names.encoder, names.decoder, source, SOURCE).sum() for source in reversed(erased)]
    assert sentence.deletion["erasure"][1:] == pytest.approx(totals, abs=1e-3)  # the strongest is at the right
    assert sentence.deletion["gradients"] == pytest.approx(sentence.deletion["erasure"], abs=1e-3)
    areas = {name: sum(curve) for name, curve in sentence.deletion.items()}
    assert areas["erasure"] < areas["random"] < areas["attention"]


@pytest.mark.parametrize("name", ["pt-en", "pt-en-gru", "ru-en"])
def test_gradients_of_a_trained_model_add_up(name):
    translator = heedful.load(name)
    text = "Мой отец работает в этом городе." if name == "ru-en" else "Meu pai trabalha nesta cidade."
    (sentence,) = heedful.inspect(translator, text, importance=False).trace.sentences
    (segment,) = translator.make_segments([text], TranslationOptions(), 0)[0]
    target = [*translator.target.encode([sentence.target.text])[0], EOS]
    assert translator.target.pieces(target) == [piece.text.replace(" ", "▁") for piece in sentence.target.pieces]
    model = translator.engine.model
    blank = copy.deepcopy(model.encoder)
    nn.init.zeros_(find_table(blank, segment.ids).weight)
    encoders = (model.encoder, blank)
    whole, baseline = (log_probs_of(each, model.decoder, segment.source.row, target) for each in encoders)
    difference = whole - baseline
    assert difference.sum() > 10  # the translation depends on its source
    sums = sentence.contributions["gradients"].array().sum(1)
    assert (np.abs(sums - difference) <= 0.055 * (1 + np.abs(difference))).all()


@pytest.mark.parametrize("name", ["pt-en", "pt-en-gru"])
def test_a_name_is_translated_from_the_name(name):
    (sentence,) = heedful.inspect(name, "Ontem o Tom comprou um carro.", importance=False).trace.sentences
    source, target = ([piece.text for piece in text.pieces] for text in (sentence.source, sentence.target))
    for blob in sentence.contributions.values():
        array = blob.array()
        assert source[array[target.index(" Tom")].argmax()] == " Tom"
    assert set(sentence.contributions) == {"erasure", "gradients"}
    assert bool(sentence.lens) == (name == "pt-en")


# ------------------------------------------------------------------------------------------------------- every model


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_is_read_as_it_was_written(kind):
    sentence = record_sentence(inspected(built(kind), unk=UNK), tokenize(TEXT), Beam(2), evidence=True)
    text = dump_trace(TraceDocument(sentences=(sentence,)))
    assert dump_trace(parse_trace(text)) == text


def test_students_and_hugging_face_models_have_what_they_expose():
    sentence = record(student())
    assert set(sentence.contributions) == {"erasure", "gradients"}
    assert set(sentence.neighbors) == {"source", "target"}
    assert sentence.lens == ()
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'heedful[dev]'")
    source = InspectedSource((*range(4, 9), EOS), "4 5 6 7 8", max_length=10)
    sentence = record_sentence(wrap_hugging_face(marian()), source, Greedy(), evidence=True)
    assert set(sentence.contributions) == {"erasure"}
    assert set(sentence.deletion) == {"erasure", "attention", "random"}
    assert (sentence.lens, sentence.neighbors) == ((), {})


def test_evidence_is_only_recorded_on_request():
    without = record_sentence(inspected(built("transformer"), unk=UNK), tokenize(TEXT), Greedy())
    assert not any(getattr(without, key) for key in KEYS)
    model = inspected(built("transformer"), unk=UNK)
    stages = []
    assert all(getattr(heedful.inspect(model, TEXT, on_progress=stages.append).trace.sentences[0], key) for key in KEYS)
    assert any("gradients" in stage for stage in stages)
    assert not any(key in dump_trace(heedful.inspect(model, TEXT, evidence=False).trace) for key in KEYS)


def test_evidence_of_25_pieces_takes_under_30_kb():
    layer = {**LAYER, "layers": 6, "heads": 4, "feedforward_size": 64}
    settings = {"width": 32, "positions": "sinusoidal", "encoder": layer, "decoder": layer}
    torch.manual_seed(1)
    model = build(config.ModelSettings.model_validate(settings), 8000, 8000).eval()

    def names(ids):
        return [f"▁piece{token}" if token != EOS else "</s>" for token in ids]

    subject = InspectedModel(
        model.encoder, model.decoder, BOS, EOS, names, names, lambda ids: " ".join(names(ids)), unk=1
    )
    source, target = (torch.randint(4, 8000, (24,)).tolist() for _ in range(2))
    asked = InspectedSource((*source, EOS), "", max_length=25)
    sentences = [
        record_sentence(subject, asked, Greedy(), forced_target=target, importance=False, evidence=chosen)
        for chosen in (True, False)
    ]
    assert all(getattr(sentences[0], key) for key in KEYS)
    assert len(sentences[0].lens) == 6
    with_evidence, without = (len(dump_trace(TraceDocument(sentences=(each,))).encode()) for each in sentences)
    assert with_evidence - without < 30_000


def test_older_traces_have_no_evidence():
    text = dump_trace(TraceDocument(sentences=(record(built("transformer")),)))
    tree = json.loads(text)
    for key in KEYS:
        del tree["sentences"][0][key]
    assert parse_trace(json.dumps(tree)).sentences[0].deletion == {}
