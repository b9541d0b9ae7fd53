"""Random models as directories, and what the page's engine computes for them under node."""

import json
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path
from random import Random

import pytest
import torch
from torch import nn

from heedful import config
from heedful.build import build
from heedful.bundle import GenerationSettings, read_float_weights, write_bundle
from heedful.engines.torch import load_model
from heedful.html import VIEWER
from heedful.inspection.live import make_live_model, unpack_weights
from heedful.nn.attention import Attention, MultiHead, SelfAttention
from heedful.text.normalize import normalize
from heedful.text.tokenizer import BOS, PAD, TableTokenizer
from heedful.translation.loading import load
from support.timeouts import PATIENCE

ENGINE = VIEWER / "engine"
RUNNER = Path(__file__).parent / "run_engine.mjs"
NODE = shutil.which("node")
TEXT = config.TextInputSettings()
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
WORDS = TableTokenizer("words", [*SPECIAL, *(f"▁w{number}" for number in range(26))])

SCRIPT_LINES = {
    "Latin": "Zwei Hunde laufen durch den tiefen Schnee; não é fácil, dit-elle à l'été 1999!",
    "Cyrillic": "Две собаки бегут по глубокому снегу, а мы едим ещё щи.",
    "Greek": "Δύο σκυλιά τρέχουν μέσα στο βαθύ χιόνι με χαρά.",
    "Hebrew": "שני כלבים רצים בשלג העמוק ליד הבית",
    "Arabic": "كلبان يركضان في الثلج العميق بجانب البيت",
    "Devanagari": "दो कुत्ते गहरी बर्फ़ में घर के पास दौड़ते हैं।",
    "Thai": "สุนัขสองตัววิ่งผ่านหิมะ ลึก ใกล้บ้าน",
    "Han and kana": "二匹の犬が 深い雪の中を 走っている。 两只狗 在厚厚的雪中 奔跑。",
}


def mixed_lines(count):
    """Lines of words of eight scripts; some end with letters in an order that no word has."""
    random, words = Random(5), [word for line in SCRIPT_LINES.values() for word in line.split()]
    lines = []
    for _ in range(count):
        picked = random.choices(words, k=random.randint(1, 14))
        if random.random() < 0.3:
            picked.append("".join(random.choices("".join(picked), k=random.randint(1, 9))))
        lines.append(normalize(" ".join(picked))[0])
    return lines


def run_engine(*jobs):
    """The results of jobs for the page's engine (tests/support/run_engine.mjs lists them)."""
    if NODE is None:
        pytest.skip("node is not installed: it runs the page's engine outside of a browser")
    command = [NODE, str(RUNNER), str(ENGINE)]
    done = subprocess.run(
        command, input=json.dumps(jobs), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def random_bundle(folder, settings, *, tokenizers=None, input=TEXT, seed=1, **options):
    """A model directory with weights that are random but large enough to matter."""
    torch.manual_seed(seed)
    model_settings = config.ModelSettings.model_validate(settings)
    tokenizers = tokenizers or {"source": WORDS, "target": WORDS}
    sizes = [tokenizers[side].size if side in tokenizers else None for side in ("source", "target")]
    model = build(model_settings, *sizes, input=input)
    for name, weight in model.named_parameters():
        gain = 1.0 if "table" in name or "projection" in name else 1.5
        nn.init.normal_(weight, std=gain * weight.size(-1) ** -0.5 if weight.dim() > 1 else 0.3)
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    if "decoder.plain_projection.bias" in weights:  # recordings do not suppress these tokens
        weights["decoder.plain_projection.bias"][[PAD, BOS]] = -30.0
    return write_bundle(
        folder,
        model=model_settings,
        weights=weights,
        tokenizers=tokenizers,
        input=input,
        languages=("de" if "source" in tokenizers else input.kind, "en"),
        card="",
        generation=options.pop("generation", GenerationSettings(beam=4)),
        **options,
    )


def live_job(bundle, quantization="int8", **job):
    """A job for the engine with this model."""
    live = make_live_model(load(bundle.folder), quantization)
    return {"description": live.description, "data": b64encode(live.weights).decode(), **job}


def dequantized(bundle, quantization="int8"):
    """The model in PyTorch, with the weights with which the page computes."""
    model = load_model(bundle)
    weights = unpack_weights(read_float_weights(bundle), quantization)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return model.eval()


def attention_modules(model, place):
    part = model.encoder if place == "encoder" else model.decoder
    kinds = (Attention, MultiHead) if place == "cross" else (SelfAttention,)
    return [module for module in part.modules() if isinstance(module, kinds)]


class ChangedRows:
    """Softmax, with some weights {slot: weight} of a row set, and the others of this row scaled to a sum of 1.

    The context of a silenced head is zero. The rows of the first call are steps: of a sentence, of a forced prefix, or
    the first step of a search. Later calls have a step each, with a row per hypothesis.
    """

    def __init__(self, head, step, cells, *, silenced=()):
        self.head, self.step, self.cells, self.silenced, self.seen = head, step, cells, list(silenced), 0

    def __call__(self, scores):
        weights = scores.softmax(-1)
        rows = weights if weights.dim() == 4 else weights.unsqueeze(1)  # a view: [B, H, T, S]
        steps = range(rows.size(2)) if self.seen == 0 else range(self.seen, self.seen + 1)
        self.seen += len(steps)
        if self.step in steps and self.cells:
            head = slice(None) if self.head is None else self.head
            row = rows[:, head, self.step] if steps.start == 0 else rows[:, head]
            others = [slot for slot in range(row.size(-1)) if slot not in self.cells]
            rest = 1 - sum(self.cells.values())
            row[..., others] *= rest / row[..., others].sum(-1, keepdim=True)
            for slot, weight in self.cells.items():
                row[..., slot] = weight
        rows[:, self.silenced] = 0.0  # a context of zeros
        return weights
