"""How fast is translation from text to text, against Hugging Face and CTranslate2?

A trained model translates Multi30k's test2016 with a beam of 5 through `heedful.load`. Hugging Face `generate` and
CTranslate2 float32 use its exports and the same tokens, in batches of 64 sorted by length; CTranslate2 runs in its own
process. The engines are interleaved.

Claims: at least 2 x Hugging Face; in a pass through the input and output code of `heedful translate`, everything except
the engine (reading lines, tokenizing, sorting, flags, joining, writing) takes less than 5 %. The ratio to CTranslate2
is reported without a claim.

    pip install transformers ctranslate2
    python benchmarks/translate_speed.py [--model MODEL] [--quick] [--rounds 5]

Without --model: the bundled sample model, on its own sentences. --quick: 64 sentences, looser bounds.
"""

import argparse
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
import heedful.exporters.ctranslate2
import heedful.exporters.marian
from heedful.cli.streams import ProgressReporter, format_translation, read_windows
from heedful.data.batch import pad_rows
from heedful.samples import model as sample_model
from heedful.text.tokenizer import EOS, PAD
from heedful.translation.translator import TranslationOptions, Translator, encode_texts
from report import header, verdict
from serving import SAMPLE, read_sentences

ROWS, BEAM = 64, 5


class Timed:
    """An engine that measures its own time."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.name, self.seconds = engine, engine.name, 0.0

    def translate(self, *given: Any) -> Any:
        begin = time.perf_counter()
        found = self.engine.translate(*given)
        self.seconds += time.perf_counter() - begin
        return found


def piped(translator: Translator, texts: list[str]) -> None:
    """Like `heedful translate`: read bytes, split into lines and windows, write lines."""
    reporter, stream = ProgressReporter(), BytesIO("".join(f"{text}\n" for text in texts).encode())
    with Path(os.devnull).open("w", encoding="utf-8") as out:
        windows = reporter.report_between(read_windows(stream, reporter))
        for number, translation in enumerate(translator.stream(windows, TranslationOptions(beam=BEAM))):
            out.write(format_translation(number, translation, None, False) + "\n")


def marian(translator: Translator) -> Any:
    """The model as a Hugging Face model."""
    from transformers import AutoModelForSeq2SeqLM

    with tempfile.TemporaryDirectory() as folder:
        heedful.exporters.marian.write(translator.bundle, Path(folder))
        return AutoModelForSeq2SeqLM.from_pretrained(folder).eval()


def hugging_face(model: Any, translator: Translator, texts: list[str]) -> list[str]:
    """Text to text with `generate`."""
    ids = [[*row, EOS] for row in encode_texts(translator.source, texts)]
    order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
    found: dict[int, str] = {}
    for begin in range(0, len(order), ROWS):
        rows = order[begin : begin + ROWS]
        tokens, mask = pad_rows([ids[row] for row in rows], PAD)
        with torch.inference_mode():
            out = model.generate(
                input_ids=tokens,
                attention_mask=mask.long(),
                num_beams=BEAM,
                max_new_tokens=max(2 * len(ids[row]) + 8 for row in rows),  # as ours, of the longest
            )
        found |= zip(rows, translator.target.decode(out.tolist()), strict=True)
    return [found[row] for row in range(len(texts))]


def serve(model: str, threads: int, count: int) -> None:
    """CTranslate2 in its own process: read a line, print the seconds; at the end, print the translations."""
    import ctranslate2

    translator, texts = heedful.load(model), read_sentences(Path(model))[:count]
    with tempfile.TemporaryDirectory() as folder:
        heedful.exporters.ctranslate2.write(translator.bundle, Path(folder))
        words = translator.target.pieces(range(translator.target.size))
        engine = ctranslate2.Translator(folder, compute_type="float32", intra_threads=threads, inter_threads=1)
        number = {word: index for index, word in enumerate(words)}
        for _ in sys.stdin:
            begin = time.perf_counter()
            rows = [translator.source.pieces(ids) for ids in encode_texts(translator.source, texts)]
            answers = engine.translate_batch(
                rows,
                beam_size=BEAM,
                length_penalty=translator.bundle.generation.length_penalty,
                max_batch_size=ROWS,
                max_decoding_length=translator.bundle.generation.max_length,
            )
            outputs = translator.target.decode([[number[word] for word in answer.hypotheses[0]] for answer in answers])
            print(json.dumps({"seconds": time.perf_counter() - begin, "texts": outputs}), flush=True)


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
    return measure(given.model or str(sample_model(SAMPLE)), given.quick, given.rounds)


def measure(model: str, quick: bool, rounds: int) -> int:
    texts = read_sentences(Path(model))[: 64 if quick else None]
    translator = heedful.load(model)
    translator.engine = timed = Timed(translator.engine)  # type: ignore[assignment]  # it only translates
    plain = heedful.load(model)
    other = marian(plain)
    command = [sys.executable, __file__, "--serve", model, str(torch.get_num_threads()), str(len(texts))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    translations = translator(texts, beam=BEAM)
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
        hugging_face(other, plain, texts)
        spent["hf"] = time.perf_counter() - begin
        process.stdin.write("\n")
        process.stdin.flush()
        reply = json.loads(process.stdout.readline())
        spent["ctranslate2"] = reply["seconds"]
        same = sum(ours.text == text for ours, text in zip(translations, reply["texts"], strict=True))
        if turn:  # the first is for warming up
            shares.append(share)
            for name, one in spent.items():
                seconds[name].append(one)
    process.stdin.close()
    process.wait()
    tokens = statistics.mean(len(translation.tokens) + 1 for translation in translations)
    for name, some in seconds.items():
        rates = [len(texts) / one for one in some]
        print(f"{name:12} {statistics.median(rates):8.1f} sentences/s  {min(rates):.1f} to {max(rates):.1f}")
    print(f"{same} of {len(texts)} translations are those of CTranslate2; {tokens:.1f} tokens each")

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
