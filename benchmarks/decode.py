"""How fast is decoding against bare PyTorch, Hugging Face and CTranslate2?

1,000 sentences with the lengths of Multi30k, exactly 15 output tokens each, random weights, batch sizes 64 (sorted by
length) and 1, engines interleaved. Claims for tiny: at least 2 x Hugging Face `generate` on a Marian model of the same
size, greedy and with a beam of 5, and at least 0.9 x a bare greedy loop with a preallocated cache. Ratios for base and
against CTranslate2 float32 are reported without a claim.

    pip install transformers ctranslate2
    python benchmarks/decode.py [--quick] [--rounds 5] [--sizes tiny base]
"""

import argparse
import gzip
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bare import Bare
from heedful.data.batch import pad_rows
from heedful.model.seq2seq import Seq2Seq
from heedful.search import Beam, DecodingLimits, Greedy
from report import header, skip, verdict
from step import SIZES, heedful_model

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
PAD, BOS, EOS = 0, 1, 2
STEPS = 15
Decode = Callable[[list[list[int]]], Any]


def sentences(vocabulary: int, count: int) -> list[list[int]]:
    """Random tokens with the lengths of Multi30k's test sentences (or similar, if the corpus is missing)."""
    path = DATA / "multi30k" / "test_2016_flickr.en.gz"
    draw = torch.Generator().manual_seed(1)
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            lengths = [len(line.split()) + 2 for line in lines][:count]  # + 2: pieces and the end token
    else:
        lengths = (14.0 + 4.0 * torch.randn(count, generator=draw)).round().clamp(5, 35).int().tolist()
    return [[*torch.randint(4, vocabulary, (n - 1,), generator=draw).tolist(), EOS] for n in lengths]


def heedful(model: Seq2Seq, beam: int) -> Decode:
    search = Greedy() if beam == 1 else Beam(beam)
    rules = DecodingLimits(BOS, EOS, STEPS, min_length=STEPS)

    def decode(batch: list[list[int]]) -> Any:
        with torch.inference_mode():
            memory = model.encoder(*pad_rows(batch, PAD))
            return search(model.decoder, memory, rules)

    return decode


def bare(model: Bare) -> Decode:
    return lambda batch: model.greedy(*pad_rows(batch, PAD), BOS, STEPS)


def hugging_face(shape: dict[str, Any], beam: int) -> Decode:
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(
        MarianConfig(
            vocab_size=shape["vocabulary"],
            d_model=shape["width"],
            encoder_layers=shape["layers"],
            decoder_layers=shape["layers"],
            encoder_attention_heads=shape["heads"],
            decoder_attention_heads=shape["heads"],
            encoder_ffn_dim=shape["inner"],
            decoder_ffn_dim=shape["inner"],
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            max_position_embeddings=256,
        )
    ).eval()

    def decode(batch: list[list[int]]) -> Any:
        tokens, mask = pad_rows(batch, PAD)
        with torch.inference_mode():
            return model.generate(
                input_ids=tokens,
                attention_mask=mask.long(),
                num_beams=beam,
                do_sample=False,
                min_new_tokens=STEPS,
                max_new_tokens=STEPS,
            )

    return decode


def ctranslate2(model: Bare, shape: dict[str, Any], beam: int, folder: str) -> Decode:
    import ctranslate2 as engine
    from ctranslate2.specs import TransformerSpec

    spec = TransformerSpec.from_config(shape["layers"], shape["heads"], pre_norm=True)

    def array(tensor: Tensor) -> Any:
        return tensor.detach().numpy().copy()

    def norm(into: Any, layer: Any) -> None:
        into.gamma, into.beta = array(layer.weight), array(layer.bias)

    def linear(into: Any, layer: Any) -> None:
        into.weight, into.bias = array(layer.weight), array(layer.bias)

    for side, layers, last in ((spec.encoder, model.encoder, model.ne), (spec.decoder, model.decoder, model.nd)):
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight, side.scale_embeddings = array(model.embed.weight), True
        side.position_encodings.encodings = array(model.positions)  # type: ignore[arg-type]
        norm(side.layer_norm, last)
        for into, layer in zip(side.layer, layers, strict=True):
            norm(into.self_attention.layer_norm, layer.n1)
            linear(into.self_attention.linear[0], layer.qkv)
            linear(into.self_attention.linear[1], layer.o)
            norm(into.ffn.layer_norm, layer.n3)
            linear(into.ffn.linear_0, layer.f1)
            linear(into.ffn.linear_1, layer.f2)
            if side is spec.decoder:
                norm(into.attention.layer_norm, layer.n2)
                for place, part in enumerate((layer.q, layer.kv, layer.co)):
                    linear(into.attention.linear[place], part)
    spec.decoder.projection.weight = array(model.embed.weight)
    words = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{index}" for index in range(4, shape["vocabulary"]))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize()
    spec.save(folder)
    translator = engine.Translator(
        folder, device="cpu", compute_type="float32", intra_threads=torch.get_num_threads(), inter_threads=1
    )

    def decode(batch: list[list[int]]) -> Any:
        return translator.translate_batch(
            [[words[token] for token in row] for row in batch],
            beam_size=beam,
            min_decoding_length=STEPS,
            max_decoding_length=STEPS,
            max_batch_size=0,
            return_scores=True,
        )

    return decode


# The PyTorch engines take turns in one process, batch by batch, so that noise hits them alike. CTranslate2 has a
# process of its own: two OpenMP runtimes in one slow each other down.
PROCESSES = (("heedful", "bare", "hf"), ("ctranslate2",))


def engine(name: str, size: str, beam: int, folder: str) -> Decode:
    shape: dict[str, Any] = SIZES[size]
    torch.manual_seed(0)
    if name == "heedful":
        return heedful(heedful_model(**shape).eval(), beam)
    if name == "bare":
        return bare(Bare(**shape).eval())
    if name == "hf":
        return hugging_face(shape, beam)
    return ctranslate2(Bare(**shape).eval(), shape, beam, folder)


def work(size: str, batch: int, count: int) -> list[list[list[int]]]:
    some = sentences(SIZES[size]["vocabulary"], count)  # type: ignore[arg-type]
    if batch == 1:
        return [[one] for one in some[: (100 if size == "tiny" else 20)]]
    ordered = sorted(some, key=len)
    return [ordered[begin : begin + batch] for begin in range(0, len(ordered), batch)]


def serve(connection: Connection, names: tuple[str, ...], size: str, count: int) -> None:
    """Answer jobs (batch, beam) with the sentences per second of each engine in this process."""
    with tempfile.TemporaryDirectory() as folder:
        made: dict[tuple[str, int], Decode] = {}
        while (job := connection.recv()) is not None:
            batch, beam = job
            batches, seconds = work(size, batch, count), {}
            for name in names:
                if name == "bare" and beam > 1:
                    continue
                try:
                    if (name, beam) not in made:
                        made[name, beam] = engine(name, size, beam, folder)
                except ModuleNotFoundError as missing:
                    skip(f"heedful / {name}", f"{missing.name} is not installed")
                    continue
                made[name, beam](batches[0])
                seconds[name] = 0.0
            for some in batches:
                for name in seconds:
                    start = time.perf_counter()
                    made[name, beam](some)
                    seconds[name] += time.perf_counter() - start
            connection.send({name: sum(map(len, batches)) / spent for name, spent in seconds.items()})


def measure(size: str, count: int, rounds: dict[int, int]) -> dict[tuple[int, int], dict[str, list[float]]]:
    """(batch, beam) -> engine -> sentences per second, one value per round; `rounds` by batch."""
    context = multiprocessing.get_context("spawn")
    workers = []
    for names in PROCESSES:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, names, size, count), daemon=True)
        process.start()
        workers.append((process, here))
    rates: dict[tuple[int, int], dict[str, list[float]]] = {}
    for job in ((64, 1), (1, 1), (64, 5), (1, 5)):
        rates[job] = {}
        for _ in range(rounds[job[0]]):
            for _, here in workers:
                here.send(job)
                for name, figure in here.recv().items():
                    rates[job].setdefault(name, []).append(figure)
    for process, here in workers:
        here.send(None)
        process.join()
    return rates


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="tiny only, 128 sentences, looser bounds for the noise")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--sentences", type=int, default=1000, help="how many to decode in batches of 64")
    options.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    given = options.parse_args()
    header(__file__)
    sizes, count = (["tiny"], 128) if given.quick else (given.sizes, given.sentences)
    rounds = {64: 3, 1: 1} if given.quick else {64: given.rounds, 1: given.rounds}
    slack = 0.8 if given.quick else 1.0
    claims: list[tuple[str, float, float]] = []
    print(f"{'model':5} {'batch':>5} {'beam':>4} {'engine':12} {'sentences/s':>11}  spread")
    for size in sizes:
        for (batch, beam), rates in measure(size, count, rounds).items():
            for name, seen in rates.items():
                row = f"{size:5} {batch:5} {beam:4} {name:12} {statistics.median(seen):11.1f}"
                print(f"{row}  {min(seen):.1f} to {max(seen):.1f}", flush=True)
            for name, least in (("bare", 0.9), ("hf", 2.0), ("ctranslate2", 0.0)):
                if name in rates:
                    ratio = statistics.median(a / b for a, b in zip(rates["heedful"], rates[name], strict=True))
                    floor = least * slack if size == "tiny" else 0.0
                    claims.append((f"{size} batch {batch} beam {beam} heedful / {name}", ratio, floor))
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
