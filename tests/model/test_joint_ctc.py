"""CTC and attention over one encoder: the loss is their weighted sum, and search ignores the CTC head."""

from copy import deepcopy

import pytest
import torch

from heedful import config
from heedful.build import build
from heedful.data.batch import collate
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.errors import ConfigError
from heedful.model.ctc import ctc_batch_loss
from heedful.nn.contract import Memory
from heedful.nn.decoders import CTCDecoder
from heedful.search import BestPath, DecodingLimits
from heedful.text.tokenizer import BOS, EOS, PAD
from support.toy_tasks import transcriptions

WORDS = 30
DECODERS = {
    "transformer": {"kind": "transformer", "layers": 1, "heads": 2, "feedforward_size": 16},
    "soft": {"kind": "recurrent", "width": 16, "attention": {"score": "additive"}},
    "hard": {"kind": "recurrent", "width": 16, "attention": {"score": "dot", "normalizer": "hard", "heads": 2}},
    "sampled": {"kind": "recurrent", "width": 16, "attention": {"score": "additive", "normalizer": "sampled"}},
}
LOSSES = {
    "plain": {},
    "smoothed": {"label_smoothing": 0.1},
    "r_drop": {"r_drop": 1.0},
    "covered": {"coverage_penalty": 1.0},
}
CASES = [
    (decoder, loss) for decoder in DECODERS for loss in LOSSES if decoder != "sampled" or loss in ("plain", "smoothed")
]


def settings(decoder, **head):
    return config.ModelSettings.model_validate(
        {
            "width": 16,
            "encoder": {"kind": "recurrent", "width": 16},
            "decoder": DECODERS[decoder],
            "ctc_head": {"upsample": 2} | head,
        }
    )


def some_batch(rows=8):
    return collate(transcriptions(torch.Generator().manual_seed(1), rows), bos=BOS, eos=EOS, pad=PAD)


def gradients(model, loss):
    """Of the encoder and the decoder; zeros for what the loss does not use."""
    weights = [
        weight for part in (model.encoder, model.decoder) for weight in part.parameters() if weight.requires_grad
    ]
    found = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(w) if gradient is None else gradient for w, gradient in zip(weights, found, strict=True)]


@pytest.mark.parametrize(("decoder", "loss"), CASES)
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_loss_is_the_weighted_sum(decoder, loss, weight):
    torch.manual_seed(0)
    model = build(settings(decoder, weight=weight), WORDS, WORDS, **LOSSES[loss]).train()
    without_head = deepcopy(model)
    without_head.ctc_head = None
    batch = some_batch()
    torch.manual_seed(7)  # for slots that are drawn
    joint = model(batch)
    torch.manual_seed(7)
    plain = without_head(batch)
    ctc = ctc_batch_loss(model.ctc_head, model.encoder(*batch.source), batch)
    assert (joint.tokens, float(joint.nll)) == (plain.tokens, float(plain.nll))
    torch.testing.assert_close(joint.smoothed, weight * ctc.smoothed + (1 - weight) * plain.smoothed)
    if weight == 0.0:
        assert joint.smoothed.equal(plain.smoothed)
        torch.testing.assert_close(gradients(model, joint.smoothed), gradients(without_head, plain.smoothed))
    if weight == 1.0:
        torch.testing.assert_close(joint.smoothed, ctc.smoothed)
        torch.testing.assert_close(gradients(model, joint.smoothed), gradients(model, ctc.smoothed))


def test_the_validation_loss_and_the_translations_are_those_of_the_decoder():
    torch.manual_seed(0)
    model = build(settings("soft"), WORDS, WORDS).eval()
    batch = some_batch()
    with_head = model(batch)
    sources = [EncodedSource((5, 6, EOS), 10)]
    ((translation,),) = TorchEngine(model).translate(sources, SearchOptions(beam=2))
    model.ctc_head = None
    assert model(batch).smoothed.equal(with_head.smoothed)
    assert TorchEngine(model).translate(sources, SearchOptions(beam=2)) == [(translation,)]


def test_both_learn():
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    model = build(settings("soft", weight=0.5), WORDS, WORDS).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        loss = model(collate(transcriptions(draw, 32), bos=BOS, eos=EOS, pad=PAD))
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        optimizer.step()
    pairs = transcriptions(torch.Generator().manual_seed(1), 40)
    sources = [EncodedSource((*source, EOS), 30, index=row) for row, (source, _) in enumerate(pairs)]
    by_attention = [
        best.hypothesis.tokens for (best, *_) in TorchEngine(model.eval()).translate(sources, SearchOptions(beam=1))
    ]
    memory = model.encoder(*collate(pairs, bos=BOS, eos=EOS, pad=PAD).source)
    by_ctc = [result.best.tokens for result in BestPath()(model.ctc_head, memory, DecodingLimits(BOS, EOS, 30))]
    for tokens in (by_attention, by_ctc):
        assert sum(output == tuple(target) for output, (_, target) in zip(tokens, pairs, strict=True)) >= 34


def test_pairs_that_do_not_fit_train_the_decoder_only():
    torch.manual_seed(0)
    model = build(settings("soft", weight=0.3), WORDS, WORDS).train()
    batch = collate([([5], [9] * 8)], bos=BOS, eos=EOS, pad=PAD)  # 4 slots
    joint = model(batch)
    model.ctc_head = None
    torch.testing.assert_close(joint.smoothed, 0.7 * model(batch).smoothed)
    joint.smoothed.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder": {"kind": "ctc"}, "tie_embeddings": "none"}, "joint training with attention"),
        ({"encoder": {"kind": "bottleneck", "width": 16}}, "CTC needs an encoder with a slot for each part"),
        ({"ctc_head": {"weight": 1.5}}, "less than or equal to 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    tree = settings("soft").model_dump() | changes
    with pytest.raises(ValueError, match=message):
        config.ModelSettings.model_validate(tree)


def test_models_without_a_head_are_described_as_before():
    tree = {"width": 8, "encoder": {"kind": "recurrent", "width": 8}, "decoder": {"kind": "recurrent", "width": 8}}
    assert "ctc_head" not in config.ModelSettings.model_validate(tree).model_dump()


def test_a_head_is_a_decoder_of_the_memory():
    model = build(settings("soft", upsample=None), WORDS, WORDS)
    assert isinstance(model.ctc_head, CTCDecoder)
    assert model.ctc_head.upsample == 1
    log_probs, _ = model.ctc_head.slot_labels(Memory(torch.randn(2, 3, 16), torch.ones(2, 3, dtype=torch.bool)))
    assert log_probs.shape == (2, 3, WORDS)
    with pytest.raises(ConfigError, match="r_drop"):
        build(settings("sampled"), WORDS, WORDS, r_drop=1.0)
