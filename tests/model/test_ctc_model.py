"""A CTC model from settings to translations: built, trained, stored, opened, inspected, and what it refuses."""

from dataclasses import replace

import pytest
import torch

from heedful import config, inspect, load
from heedful.build import build
from heedful.data.batch import collate
from heedful.engines.base import EncodedSource, SamplingOptions, SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.errors import ConfigError, HeedfulError
from heedful.exporters.onnx import require_exportable
from heedful.exporters.transformer import require_standard_transformer
from heedful.text.tokenizer import BOS, EOS, PAD
from support.toy_tasks import transcriptions
from test_bundle import made

WORDS = 30
TREE = {
    "width": 16,
    "tie_embeddings": "none",
    "encoder": {"kind": "recurrent", "width": 32},
    "decoder": {"kind": "ctc", "upsample": 2},
}
SETTINGS = config.ModelSettings.model_validate(TREE)


def test_a_model_learns_to_transcribe():
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    model = build(SETTINGS, WORDS, WORDS).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        loss = model(collate(transcriptions(draw, 32), bos=BOS, eos=EOS, pad=PAD))
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        optimizer.step()
    pairs = transcriptions(torch.Generator().manual_seed(1), 40)
    engine = TorchEngine(model)
    sources = [EncodedSource((*source, EOS), 30, index=row) for row, (source, _) in enumerate(pairs)]
    for options in (SearchOptions(beam=1), SearchOptions(beam=4, attention=True)):
        results = engine.translate(sources, options)
        exact = [best.hypothesis.tokens == tuple(y) for (best, *_), (_, y) in zip(results, pairs, strict=True)]
        assert sum(exact) >= 36
    scored = engine.score_targets(sources, [y for _, y in pairs], attention=True)
    for (best, *_), given, (source, _), is_exact in zip(results, scored, pairs, exact, strict=True):
        assert best.attention.shape == (1, 1, len(best.hypothesis.tokens) + 1, len(source) + 1)
        if is_exact:
            assert given.hypothesis.log_probability == pytest.approx(best.hypothesis.log_probability, abs=1e-4)
            assert given.attention.shape == best.attention.shape
    forced = [EncodedSource(source.row, 30, prefix=(12,), index=source.index) for source in sources[:3]]
    assert all(best.hypothesis.tokens[0] == 12 for (best,) in engine.translate(forced, SearchOptions(beam=2)))
    assert len(engine.translate(sources[:2], SearchOptions(num_best=2, sampling=SamplingOptions(seed=1)))[0]) == 2


def test_pairs_that_do_not_fit_are_left_out_of_the_loss():
    torch.manual_seed(0)
    model = build(SETTINGS, WORDS, WORDS).eval()
    fits, too_long = ([5, 6], [9, 9, 10]), ([5], [9] * 8)  # the second has 4 slots
    both = model(collate([fits, too_long], bos=BOS, eos=EOS, pad=PAD))
    alone = model(collate([fits], bos=BOS, eos=EOS, pad=PAD))
    assert both.tokens == alone.tokens == 4
    torch.testing.assert_close(both.nll, alone.nll)
    only = model(collate([too_long], bos=BOS, eos=EOS, pad=PAD))
    assert (float(only.nll), only.tokens) == (0.0, 1)
    only.smoothed.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_answers_are_ranked_by_their_probability():
    """p(y | x) is exact, so no length penalty applies, also where a prefix needs another search, and in `inspect`."""
    torch.manual_seed(0)
    engine = TorchEngine(build(SETTINGS, WORDS, 8))
    sources = [EncodedSource((*torch.randint(4, WORDS, (4,)).tolist(), EOS), 20, index=row) for row in range(20)]
    free = engine.translate(sources, SearchOptions())
    forced = engine.translate([replace(source, prefix=(5,)) for source in sources], SearchOptions())
    for (best,) in (*free, *forced):
        assert best.hypothesis.score == pytest.approx(best.hypothesis.log_probability, abs=1e-4)
        assert len(best.hypothesis.tokens) != 1  # else the length would not matter


def test_an_inspected_answer_is_ranked_by_its_probability(tmp_path):
    bundle = made(tmp_path / "model", "characters", SETTINGS)
    (sentence,) = inspect(load(bundle.folder), "bacab", importance=False).trace.sentences
    assert sentence.score == pytest.approx(sentence.logp, abs=1e-4)


def test_a_model_directory_translates_and_can_be_inspected(tmp_path):
    bundle = made(tmp_path / "model", "characters", SETTINGS)
    translator = load(bundle.folder)
    assert translator("abc", beam=3).log_probability < 0
    (sentence,) = inspect(translator, "abc").trace.sentences
    assert sentence.attention["cross"].shape[:2] == (1, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"tie_embeddings": "target"}, "no target embeddings"), ({"decoder": {"kind": "ctc", "upsample": 0}}, "upsample")],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config.ModelSettings.model_validate(TREE | changes)


def test_what_ctc_cannot_do_is_refused_in_words():
    with pytest.raises(ConfigError, match="use it without CTC and sampled attention"):
        build(SETTINGS, WORDS, WORDS, r_drop=1.0)
    with pytest.raises(ConfigError, match="word_dropout needs a decoder that reads its own words"):
        build(SETTINGS, WORDS, WORDS, word_dropout=0.1)
    with pytest.raises(HeedfulError, match="CTC models cannot be exported to ONNX: serve the model directory"):
        require_exportable(SETTINGS)
    with pytest.raises(HeedfulError, match="CTranslate2 does not support CTC models"):
        require_standard_transformer(SETTINGS, "CTranslate2")
    slow = TREE | {"encoder": {"kind": "recurrent", "width": 8, "cell": "gru", "reset": "before"}}
    slow |= {"decoder": {"kind": "recurrent", "width": 8}}
    with pytest.raises(HeedfulError, match='reset = "before" is a loop'):
        require_exportable(config.ModelSettings.model_validate(slow))
