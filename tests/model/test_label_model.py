"""A classifier from settings to labels: the formula, the loss, training, the model directory, and what it refuses."""

import pytest
import torch
from torch import nn

from heedful import config, inspect, load
from heedful.build import build
from heedful.data.batch import collate
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.errors import ConfigError, HeedfulError
from heedful.exporters.onnx import require_exportable
from heedful.exporters.transformer import require_standard_transformer
from heedful.nn.contract import Look, Memory
from heedful.nn.decoders import LabelDecoder
from heedful.nn.decoders.labels import POOLING_KINDS
from heedful.text.tokenizer import BOS, EOS, PAD, UNK
from test_bundle import made

WORDS, LABELS = 30, 7  # labels: 4, 5, 6
TREE = {
    "width": 16,
    "tie_embeddings": "none",
    "encoder": {"kind": "recurrent", "width": 32},
    "decoder": {"kind": "labels"},
}


def settings(**changes) -> config.ModelSettings:
    return config.ModelSettings.model_validate(TREE | changes)


def task(seed, rows, *, per_slot=False):
    """The label says whether a source has a 5 (or, per slot, whether the word before is a 5)."""
    draw = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(rows):
        source = torch.randint(4, 9, (int(torch.randint(2, 7, (), generator=draw)),), generator=draw).tolist()
        slots = [4 + (word == 5) for word in [4, *source[:-1]]]
        pairs.append((source, slots if per_slot else [4 + (5 in source)]))
    return pairs


@pytest.mark.parametrize("pooling", POOLING_KINDS)
def test_a_model_learns_labels(pooling):
    torch.manual_seed(0)
    model = build(settings(decoder={"kind": "labels", "pooling": pooling}), WORDS, LABELS, label_smoothing=0.1).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    per_slot = pooling == "none"
    for step in range(60):
        loss = model(collate(task(step, 32, per_slot=per_slot), bos=BOS, eos=EOS, pad=PAD))
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        optimizer.step()
    pairs, engine = task(1000, 40, per_slot=per_slot), TorchEngine(model)
    sources = [EncodedSource((*source, EOS), 30, index=row) for row, (source, _) in enumerate(pairs)]
    results = engine.translate(sources, SearchOptions(beam=1))
    assert sum(best.hypothesis.tokens == tuple(y) for (best, *_), (_, y) in zip(results, pairs, strict=True)) >= 38
    scored = engine.score_targets(sources, [y for _, y in pairs], attention=True)
    batch = collate(pairs, bos=BOS, eos=EOS, pad=PAD)
    total = sum(result.hypothesis.log_probability for result in scored)
    assert float(model(batch).nll) == pytest.approx(-total, rel=1e-4)  # the loss is that of the decoder's steps
    assert all((result.attention is not None) == (pooling == "attention") for result in scored)
    if not per_slot:  # all labels with their probabilities
        ranked = engine.translate(sources[:2], SearchOptions(beam=3, num_best=3))
        for row in ranked:
            assert sorted(result.hypothesis.tokens for result in row) == [(4,), (5,), (6,)]
            total = sum(torch.tensor(result.hypothesis.log_probability).exp() for result in row)
            assert float(total) == pytest.approx(1.0, abs=1e-5)


def test_the_pooling_is_the_formula():
    torch.manual_seed(0)
    decoder = LabelDecoder(nn.Linear(4, 6, bias=False), 4, special=(0, 1, 2, 3), eos=3).double()
    memory = Memory(torch.randn(1, 3, 4).double(), torch.tensor([[True, True, False]]))
    pooling, score = decoder.attention, decoder.attention.attention.score
    keys = score.prepare(memory.states)
    scores = score(pooling.query, keys)[0, 0, :2]
    weights = scores.softmax(0)
    context = weights @ memory.states[0, :2]
    expected = (decoder.output.weight @ context)[4:].log_softmax(0).detach()
    decoded, _ = decoder(torch.tensor([[2, 4]]), decoder.start(memory), Look())
    log_probs = decoder.project(decoded.states).log_softmax(-1)[0].detach()
    torch.testing.assert_close(log_probs[0, 4:], expected)
    assert log_probs[1].argmax() == EOS
    assert float(log_probs[1, EOS]) == pytest.approx(0.0)
    torch.testing.assert_close(decoded.maps.cross[0].weights[0, 0, 0, :2].detach(), weights.detach())


def test_unknown_labels_do_not_count():
    torch.manual_seed(0)
    model = build(settings(decoder={"kind": "labels", "pooling": "none"}), WORDS, LABELS).eval()
    partly = model(collate([([5, 6, 7], [4, UNK, 5])], bos=BOS, eos=EOS, pad=PAD))
    assert partly.tokens == 3  # two labels and the end
    nothing = build(settings(), WORDS, LABELS)(collate([([5], [UNK])], bos=BOS, eos=EOS, pad=PAD))
    assert (float(nothing.nll), nothing.tokens) == (0.0, 1)
    nothing.smoothed.backward()


def test_a_model_directory_labels_and_can_be_inspected(tmp_path):
    bundle = made(tmp_path / "model", "characters", settings())
    labeler = load(bundle.folder)
    results = labeler(["abc", "b" * 5_000], num_best=2)
    assert all(len(result.alternatives) == 1 for result in results)
    assert (labeler("  ").text, labeler("  ").tokens) == ("", ())  # a blank line stays blank
    (sentence,) = inspect(labeler, "abc").trace.sentences
    assert sentence.attention["cross"].shape[:2] == (1, 1)
    with pytest.raises(HeedfulError, match="pass a string"):
        labeler([3])
    with pytest.raises(HeedfulError, match="a label has no prefix"):
        labeler("abc", prefix="a")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie_embeddings": "all"}, "a decoder of labels has no target embeddings"),
        ({"decoder": {"kind": "labels", "pooling": "sum"}}, "pooling"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        settings(**changes)


def test_what_labels_cannot_do_is_refused_in_words():
    with pytest.raises(ConfigError, match="are for text, not for labels"):
        build(settings(), WORDS, LABELS, r_drop=1.0)
    with pytest.raises(ConfigError, match="word_dropout needs a decoder that reads its own words"):
        build(settings(), WORDS, LABELS, word_dropout=0.1)
    with pytest.raises(HeedfulError, match="models of labels cannot be exported to ONNX: use the model directory"):
        require_exportable(settings())
    with pytest.raises(HeedfulError, match="CTranslate2 does not support models of labels"):
        require_standard_transformer(settings(), "CTranslate2")
    with pytest.raises(ConfigError, match="has no source to label"):
        build(settings(encoder={"kind": "nothing"}), None, LABELS, input=config.NoInputSettings(kind="none"))
    with pytest.raises(ValueError, match="pooling 'sum' is unknown"):
        LabelDecoder(nn.Linear(4, 6), 4, pooling="sum")
