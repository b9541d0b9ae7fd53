"""It must carry 3.3 billion parameters and 256 thousand words, sharded, on any device."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch, collate
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.attention import COMBINE_MODES
from heedful.nn.decoders import TransformerDecoder
from heedful.nn.encoders import GraphAttention, TransformerEncoder
from heedful.nn.layers import Embed, TransformerLayerOptions, output_layer
from heedful.nn.positions import Sinusoidal
from support.timeouts import PATIENCE
from support.zoo import ENCODER_CASES, RECURRENT_CASES, Case, batch_for

HERE = Path(__file__).parent
WORKER = HERE / "support" / "fsdp_worker.py"


def transformer(vocabulary: int, layers: int, width: int, inner: int, heads: int) -> Seq2Seq:
    table = nn.Embedding(vocabulary, width)
    embed = Embed(table, positions=Sinusoidal(64, width), scale_embeddings=True, dropout=0.1)
    options = TransformerLayerOptions(heads=heads, feedforward_size=inner, dropout=0.1)
    output = output_layer(width, vocabulary, tied_to=table)
    return Seq2Seq(
        TransformerEncoder(embed, layers=layers, options=options),
        TransformerDecoder(embed, output, width, layers=layers, options=options),
        label_smoothing=0.1,
    )


def parameters_of_a_transformer(vocabulary: int, layers: int, width: int, inner: int) -> int:
    """V D for the one table; per attention 4 D^2 + 4 D; per feed-forward 2 D F + F + D; 2 D per LayerNorm."""
    attention = 4 * width**2 + 4 * width
    feed_forward = 2 * width * inner + inner + width
    norm = 2 * width
    encoder = layers * (attention + feed_forward + 2 * norm) + norm
    decoder = layers * (2 * attention + feed_forward + 3 * norm) + norm
    return vocabulary * width + encoder + decoder


def on_meta() -> Batch:
    batch = collate([([5] * 9, [6] * 7), ([5] * 4, [6] * 3)], bos=1, eos=2, pad=0)
    return batch.to("meta")


def test_three_billion_parameters_build_on_the_meta_device_and_take_a_step_there():
    shape = {"vocabulary": 256_000, "layers": 24, "width": 2048, "inner": 8192}
    with torch.device("meta"):
        model = transformer(**shape, heads=16)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == parameters_of_a_transformer(**shape)
    assert 3.3e9 < count < 3.4e9
    batch = on_meta()
    loss = model(batch)
    loss.smoothed.backward()
    assert all(parameter.grad is not None and parameter.grad.device.type == "meta" for parameter in model.parameters())
    with torch.inference_mode():
        state = model.decoder.start(model.encoder(*batch.source))
        for _ in range(2):
            decoded, state = model.decoder(batch.inputs[:, :1], state)
        assert model.decoder.project(decoded.states).shape == (2, 1, 256_000)


@pytest.mark.parametrize("encoder", [name for name in ENCODER_CASES if not name.startswith("graph")])
def test_every_encoder_runs_on_the_meta_device(encoder):
    """A tensor made on the wrong device fails here, without a GPU. How many edges a graph has depends on its data."""
    model = Case(encoder, "transformer-pre-sinusoidal", "concat", "additive", "soft", "greedy").model().to("meta")
    model(batch_for(model.encoder, [([5] * 4, [6] * 7), ([5] * 3, [6] * 3)]).to("meta")).smoothed.backward()


@pytest.mark.parametrize("combine", COMBINE_MODES)
def test_graph_attention_runs_on_the_meta_device(combine):
    layer = GraphAttention(4, 8, 2, combine=combine, dropout=0.1, weight_dropout=0.1).to("meta").train()
    edges = torch.zeros(2, 30, dtype=torch.long, device="meta")
    attended = layer.attend(torch.zeros(10, 4, device="meta"), edges, silent=(1,))
    attended.context.sum().backward()
    assert all(parameter.grad.device.type == "meta" for parameter in layer.parameters())


@pytest.mark.parametrize("kind", RECURRENT_CASES)
@pytest.mark.parametrize("score", ["additive", "content_location", "location"])
def test_every_recurrent_decoder_runs_on_the_meta_device(kind, score):
    model = Case("gru-bi-2", kind, "single", score, "hard", "greedy").model().to("meta").train()
    batch = on_meta()
    model(batch).smoothed.backward()
    memory = model.encoder(*batch.source)
    decoded, _ = model.decoder(batch.inputs[:, :1], model.decoder.start(memory))
    assert decoded.states.device.type == "meta"


def test_a_table_of_sinusoids_survives_the_way_from_meta():
    with torch.device("meta"):
        empty = Sinusoidal(20, 8)
    filled = empty.to_empty(device="cpu")
    filled.reset_parameters()
    assert torch.equal(filled.table, Sinusoidal(20, 8).table)


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch has no torch.distributed")
def test_fsdp2_over_two_ranks_is_the_unsharded_run():
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            "--standalone",
            WORKER,
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "largest difference" in run.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from Linux's /proc")
def test_a_vocabulary_of_256_thousand_needs_under_a_gibibyte_beyond_weights_and_gradients():
    run = subprocess.run(
        [sys.executable, HERE.parent / "benchmarks" / "loss_memory.py", "--quick"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
