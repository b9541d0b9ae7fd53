"""How fast is translation from text to text, against Hugging Face and CTranslate2?

A trained model translates test2016 of Multi30k with a beam of 5 through `heedful.load`. Hugging Face `generate` gets a
Marian model of the same size and the same tokens, in batches of 64 sorted by length, and is made to end every sentence
at the length that heedful gave it. CTranslate2 float32 gets the same weights, in a process of its own. The engines take
turns. Claims: >= 2 x Hugging Face; of a pass through the command's own reading and writing, all but the engine (reading
lines, cutting into pieces, sorting, alarms, joining, writing) takes less than 5 %. The ratio to CTranslate2 is stated.

    pip install transformers ctranslate2
    python benchmarks/translate_speed.py --model MODEL [--quick] [--rounds 5]

--quick: 64 sentences, a model that is trained for 25 seconds, looser bounds.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

import heedful
from heedful.cli.translate import Told, rendered, windows
from heedful.data.batch import padded
from heedful.engines.torch import Torch
from heedful.text.tokenizer import BOS, EOS, PAD
from heedful.translate import Options, Translator, encoded
from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"
ROWS, BEAM = 64, 5


def test_lines() -> list[str]:
    with gzip.open(DATA / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as lines:
        return lines.read().splitlines()


class Timed:
    """An engine that knows how long it worked."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.name, self.seconds = engine, engine.name, 0.0

    def answers(self, *given: Any) -> Any:
        begin = time.perf_counter()
        found = self.engine.answers(*given)
        self.seconds += time.perf_counter() - begin
        return found


def piped(translator: Translator, texts: list[str]) -> None:
    """As `heedful translate` does it: bytes are read, cut into lines and windows, and lines of text are written."""
    told, stream = Told(), BytesIO("".join(f"{text}\n" for text in texts).encode())
    with Path(os.devnull).open("w", encoding="utf-8") as out:
        for number, found in enumerate(translator.stream(told.between(windows(stream, told)), Options(beam=BEAM))):
            out.write(rendered(number, found, None, False) + "\n")


def marian(translator: Translator) -> Any:
    """Hugging Face's model of the same size, with random weights."""
    from transformers import MarianConfig, MarianMTModel

    about = translator.bundle.description
    encoder, decoder = about.model.encoder, about.model.decoder
    return MarianMTModel(
        MarianConfig(
            vocab_size=about.vocabulary["target"],
            d_model=about.model.width,
            encoder_layers=encoder.layers,
            decoder_layers=decoder.layers,
            encoder_attention_heads=encoder.heads,  # type: ignore[union-attr]
            decoder_attention_heads=decoder.heads,  # type: ignore[union-attr]
            encoder_ffn_dim=encoder.inner,  # type: ignore[union-attr]
            decoder_ffn_dim=decoder.inner,  # type: ignore[union-attr]
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            max_position_embeddings=512,
        )
    ).eval()


class Ending:
    """Every sentence ends at its own length, as it would with weights that were trained."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = torch.tensor(lengths).repeat_interleave(BEAM)

    def __call__(self, said: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        over = said.size(1) >= self.lengths  # the start token is among what was said
        scores[~over, EOS] = -torch.inf
        if over.any():
            scores[over] = -torch.inf
            scores[over, EOS] = 0.0
        return scores


def hugging_face(model: Any, translator: Translator, texts: list[str], lengths: list[int]) -> list[str]:
    """From text to text, as one would with `generate`; every sentence gets the length that heedful gave it."""
    ids = [[*row, EOS] for row in encoded(translator.source, texts)]
    order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
    found: dict[int, str] = {}
    for begin in range(0, len(order), ROWS):
        rows = order[begin : begin + ROWS]
        tokens, mask = padded([ids[row] for row in rows], PAD)
        with torch.inference_mode():
            out = model.generate(
                input_ids=tokens,
                attention_mask=mask.long(),
                num_beams=BEAM,
                do_sample=False,
                max_new_tokens=max(lengths[row] for row in rows) + 1,
                logits_processor=[Ending([lengths[row] for row in rows])],
            )
        found |= zip(rows, translator.target.decode(out.tolist()), strict=True)
    return [found[row] for row in range(len(texts))]


def ctranslate2_spec(translator: Translator, folder: str) -> list[str]:
    """Write the model as CTranslate2 reads it; gives its words."""
    from ctranslate2.specs import TransformerSpec

    assert isinstance(translator.engine, Torch)
    model: Any = translator.engine.model
    spec = TransformerSpec.from_config(
        len(model.encoder.layers), model.encoder.layers[0].attention.heads, pre_norm=True
    )

    def array(tensor: torch.Tensor) -> Any:
        return tensor.detach().numpy().copy()

    def norm(into: Any, layer: Any) -> None:
        into.gamma, into.beta = array(layer.weight), array(layer.bias)

    def linear(into: Any, layer: Any) -> None:
        into.weight = array(layer.weight)
        if layer.bias is not None:
            into.bias = array(layer.bias)

    for side, part in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight, side.scale_embeddings = array(part.embed.table.weight), True
        side.position_encodings.encodings = array(part.embed.positions.table)
        norm(side.layer_norm, part.norm)
        for into, layer in zip(side.layer, part.layers, strict=True):
            norm(into.self_attention.layer_norm, layer.around_attention.norm)
            linear(into.self_attention.linear[0], layer.attention.project)
            linear(into.self_attention.linear[1], layer.attention.out)
            norm(into.ffn.layer_norm, layer.around_feed_forward.norm)
            linear(into.ffn.linear_0, layer.feed_forward.up)
            linear(into.ffn.linear_1, layer.feed_forward.down)
            if side is spec.decoder:
                norm(into.attention.layer_norm, layer.around_cross.norm)
                for place, one in enumerate((layer.cross.query, layer.cross.memory, layer.cross.out)):
                    linear(into.attention.linear[place], one)
    linear(spec.decoder.projection, model.decoder.plain_projection)
    size = translator.bundle.description.vocabulary["target"]
    words = ["<blank>", "<unk>", "<s>", "</s>", *(f"w{index}" for index in range(4, size))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    spec.save(folder)
    return words


def serve(model: str, threads: int, count: int) -> None:
    """CTranslate2 in a process of its own: a line in, the seconds it took out, and at the end what it said."""
    import ctranslate2

    translator, texts = heedful.load(model), test_lines()[:count]
    with tempfile.TemporaryDirectory() as folder:
        words = ctranslate2_spec(translator, folder)
        engine = ctranslate2.Translator(folder, compute_type="float32", intra_threads=threads, inter_threads=1)
        number = {word: index for index, word in enumerate(words)}
        for _ in sys.stdin:
            begin = time.perf_counter()
            rows = [[*(words[one] for one in ids), "</s>"] for ids in encoded(translator.source, texts)]
            answers = engine.translate_batch(
                rows,
                beam_size=BEAM,
                length_penalty=translator.bundle.generation.length_penalty,
                max_batch_size=ROWS,
                max_decoding_length=translator.bundle.generation.limit,
            )
            said = translator.target.decode([[number[word] for word in one.hypotheses[0]] for one in answers])
            print(json.dumps({"seconds": time.perf_counter() - begin, "said": said}), flush=True)


def trained(folder: str) -> str:
    files = [str(DATA / f"train.{side}.gz") for side in ("en", "de")]
    command = [sys.executable, "-m", "heedful", "train", *files, "--out", folder, "--time", "25s"]
    few = ["--recipe", "transformer-tiny", "--set", "train.validate_pairs=50"]
    subprocess.run([*command, *few], check=True, capture_output=True)
    return folder


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--model", help="a trained pre-norm Transformer that translates English")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        serve(given.serve[0], int(given.serve[1]), int(given.serve[2]))
        return 0
    header(__file__)
    with tempfile.TemporaryDirectory() as made:
        return measured(given.model or trained(made), given.quick, given.rounds)


def measured(model: str, quick: bool, rounds: int) -> int:
    texts = test_lines()[: 64 if quick else None]
    translator = heedful.load(model)
    timed = translator.engine = Timed(translator.engine)
    plain = heedful.load(model)
    other = marian(plain)
    command = [sys.executable, __file__, "--serve", model, str(torch.get_num_threads()), str(len(texts))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    found = translator(texts, beam=BEAM)
    lengths = [len(one.tokens) + 1 for one in found]
    seconds: dict[str, list[float]] = {"heedful": [], "hf": [], "ctranslate2": []}
    shares, same = [], 0
    for turn in range((1 if quick else rounds) + 1):
        begin = time.perf_counter()
        translator(texts, beam=BEAM)
        spent = {"heedful": time.perf_counter() - begin}
        timed.seconds, begin = 0.0, time.perf_counter()
        piped(translator, texts)
        share = 1 - timed.seconds / (time.perf_counter() - begin)
        begin = time.perf_counter()
        hugging_face(other, plain, texts, lengths)
        spent["hf"] = time.perf_counter() - begin
        process.stdin.write("\n")
        process.stdin.flush()
        told = json.loads(process.stdout.readline())
        spent["ctranslate2"] = told["seconds"]
        same = sum(one.text == text for one, text in zip(found, told["said"], strict=True))
        if turn:  # the first is for warming up
            shares.append(share)
            for name, one in spent.items():
                seconds[name].append(one)
    process.stdin.close()
    process.wait()
    for name, some in seconds.items():
        rates = [len(texts) / one for one in some]
        print(f"{name:12} {statistics.median(rates):8.1f} sentences/s  {min(rates):.1f} to {max(rates):.1f}")
    print(f"{same} of {len(texts)} translations are those of CTranslate2; {statistics.mean(lengths):.1f} tokens each")

    def ratio(name: str) -> float:
        return statistics.median(theirs / ours for theirs, ours in zip(seconds[name], seconds["heedful"], strict=True))

    return verdict(
        [
            ("heedful / Hugging Face", ratio("hf"), 1.4 if quick else 2.0),
            ("heedful / CTranslate2 float32 (aim: 0.7)", ratio("ctranslate2"), 0.0),
            ("share of the time in the engine", 1 - statistics.median(shares), 0.85 if quick else 0.95),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
