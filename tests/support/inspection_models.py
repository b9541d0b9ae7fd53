"""Small models of every kind to inspect, and a student's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from heedful import config
from heedful.build import build
from heedful.inspection.record import InspectedModel, InspectedSource
from heedful.nn.contract import Decoded, Look, Map, Maps, Memory, State
from heedful.trace import parse_trace

PAD, UNK, BOS, EOS = range(4)
WORDS = [f"<{name}>" for name in ("pad", "unk", "s")] + [
    "</s>",
    *["▁a", "▁red", "▁house", "▁the", "▁old", "▁dog", "s", "▁sees", "▁two", "ing"],
]
SIZE = len(WORDS)
LAYER = {"kind": "transformer", "layers": 2, "heads": 2, "feedforward_size": 16, "dropout": 0.0}
RECURRENT = {"kind": "recurrent", "width": 16, "dropout": 0.0}


def recurrent(cell, **attention):
    encoder = {**RECURRENT, "cell": cell}
    return {"width": 16, "encoder": encoder, "decoder": {**RECURRENT, "cell": cell, "attention": attention}}


MODELS = {
    **{
        name: config.read_recipe(name)["model"]
        for name in ("transformer-tiny", "lstm-bahdanau", "gru-luong", "rnn-bottleneck")
    },
    "transformer": {"width": 16, "positions": "sinusoidal", "encoder": LAYER, "decoder": LAYER},
    "content-location": recurrent("gru", score="content_location"),
    "location": recurrent("gru", score="location"),
    "hard": recurrent("gru", score="dot", normalizer="hard"),
}


def pieces(ids):
    return [WORDS[one] for one in ids]


def detokenize(ids):
    return "".join(pieces(ids)).replace("▁", " ").strip()


def tokenize(text):
    ids = [WORDS.index(f"▁{word}") for word in text.split()]
    return InspectedSource((*ids, EOS), text, max_length=12)


def inspected(model, **more):
    return InspectedModel(model.encoder, model.decoder, BOS, EOS, pieces, pieces, detokenize, tokenize=tokenize, **more)


def built(kind, seed=1):
    torch.manual_seed(seed)
    model = build(config.ModelSettings.model_validate(MODELS[kind]), SIZE, SIZE).eval()
    for weight in model.parameters():  # at the beginning of training every choice is much like every other
        nn.init.normal_(weight, std=1.6 * weight.size(-1) ** -0.5 if weight.dim() > 1 else 0.2)
    return model


# A student's model: nothing of heedful but the shapes of the contract.


class StudentEncoder(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embed, self.rnn, self.width = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), width

    def forward(self, tokens, mask, look=None):
        return Memory(self.rnn(self.embed(tokens))[0], mask)


class StudentDecoder(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(2 * width, words)

    def start(self, memory):
        return State((memory.states, memory.mask), memory.states[:, -1])

    def forward(self, tokens, state, look=None):
        keys, mask = state.source
        states, last = self.rnn(self.embed(tokens), state.past.unsqueeze(0))
        scores = (states @ keys.transpose(1, 2)).masked_fill(~mask.unsqueeze(1), -1e9)
        weights = scores.softmax(-1)
        maps = Maps(cross=(Map(weights=weights.unsqueeze(1)),)) if look else None
        return Decoded(torch.cat((states, weights @ keys), -1), maps), State(state.source, last[0])

    def project(self, states):
        return self.output(states)


class Student(nn.Module):
    def __init__(self, words=SIZE, width=16):
        super().__init__()
        self.encoder, self.decoder = StudentEncoder(words, width), StudentDecoder(words, width)


def student(seed=1):
    torch.manual_seed(seed)
    return Student().eval()


def marian(seed=1):
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(seed)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=SIZE, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, pad_token_id=PAD, bos_token_id=BOS,
            eos_token_id=EOS, decoder_start_token_id=PAD, forced_eos_token_id=None, max_position_embeddings=64,
        )
    )  # fmt: skip
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.4)
    return model.eval()


def force_target(model, text, target):
    """Log-probabilities of every step, and the maps of encoder and decoder, when the model is given a target."""
    tokens = torch.tensor([tokenize(text).ids])
    look = Look(frozenset({"weights", "scores"}))
    memory = model.encoder(tokens, torch.ones_like(tokens, dtype=torch.bool), look=look)
    with torch.inference_mode():
        decoded, _ = model.decoder(torch.tensor([[BOS, *target[:-1]]]), model.decoder.start(memory), look)
        return model.decoder.project(decoded.states)[0].log_softmax(-1), memory.maps, decoded.maps


def target_ids(sentence):
    return [WORDS.index(piece.text.replace(" ", "▁")) for piece in sentence.target.pieces]


PRETRAINED = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).parents[3] / "shared" / "data")) / "pretrained-ct2-aren"
# In a process of its own: the libraries of CTranslate2 and PyTorch do not get along in one.
RECORD_ARABIC = """
import ctranslate2, sys
from heedful.inspection.ctranslate2 import record_ctranslate2
from heedful.trace import TraceDocument, dump_trace
engine = ctranslate2.Translator(sys.argv[1], "cpu", intra_threads=1)
name = sys.argv[2]
sentence = record_ctranslate2(engine, list(name), name, "".join, beam=4, languages=("ar", "en"))
sys.stdout.buffer.write(dump_trace(TraceDocument(sentences=(sentence,))).encode())
"""


def record_arabic():
    """A trace of a pretrained CTranslate2 model, and the line of its test set: source, reference, output, score."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'heedful[dev]'")
    if not PRETRAINED.is_dir():
        pytest.skip(f"there is no {PRETRAINED}")
    line = (PRETRAINED / "expected-ar2en-test.tsv").read_text(encoding="utf-8").splitlines()[1].split("\t")
    command = [sys.executable, "-c", RECORD_ARABIC, str(PRETRAINED), line[0]]
    (sentence,) = parse_trace(subprocess.run(command, capture_output=True, check=True).stdout).sentences
    return sentence, line
