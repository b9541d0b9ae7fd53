"""What does serving with int8 change?

The bundled Transformers, exported to CTranslate2 as float32 and as int8 (the default of `heedful serve`), against
PyTorch with float32: how many texts of the official Tatoeba test sets differ, BLEU and chrF with p-values (paired
bootstrap), and CPU time. CTranslate2 stops its beam search earlier than PyTorch, which changes texts too. Claims: int8
loses at most 0.3 BLEU against PyTorch, and as much against CTranslate2 with float32.

    python benchmarks/quantization.py [--quick]
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import heedful
from heedful import samples
from heedful.metrics.compare import compare
from report import header, read_lines, verdict

TESTS = {
    "pt-en": ("tatoeba-eng-por/test.por.gz", "tatoeba-eng-por/test.eng.gz"),
    "ru-en": ("tatoeba-eng-rus/test.rus.gz", "tatoeba-eng-rus/test.eng.gz"),
}


def measure(name: str, num_sentences: int, folder: Path) -> list[tuple[str, float, float]]:
    sources, references = map(read_lines, TESTS[name])
    rows = random.Random(1).sample(range(len(sources)), num_sentences)
    texts, expected = [sources[row] for row in rows], [references[row] for row in rows]
    outputs, seconds = {}, {}
    for system in ("PyTorch float32", "CTranslate2 float32", "CTranslate2 int8"):
        engine, quantization = system.split()
        path = samples.model(name)
        if engine == "CTranslate2":
            path = folder / f"{name}-{quantization}"
            heedful.export(samples.model(name), path, to="ctranslate2", quantization=quantization)
        translator = heedful.load(path, threads=1)
        start = time.process_time()
        outputs[system] = [translation.text for translation in translator(texts, tokens=False)]
        seconds[system] = time.process_time() - start
    comparison = compare(outputs, [expected])
    for paired in comparison.scores:
        p_value = "" if paired.p is None else f"  p {paired.p:.3f}"
        print(
            f"{name}  {paired.system:20} {paired.name:5} {paired.value:6.2f}  {paired.difference:+.2f}{p_value}",
            flush=True,
        )
    different = {compared.name: num_sentences - compared.tally.same for compared in comparison.compared}
    for system, count in different.items():
        speed = seconds["PyTorch float32"] / seconds[system]
        print(
            f"{name}  {system:20} {count} of {num_sentences} texts differ, {speed:.1f} times as fast (CPU time)",
            flush=True,
        )
    bleu = {paired.system: paired.difference for paired in comparison.scores if paired.name == "bleu"}
    return [
        (f"{name}: BLEU of int8 minus that of PyTorch", bleu["CTranslate2 int8"], -0.3),
        (
            f"{name}: BLEU of int8 minus that of float32 in CTranslate2",
            bleu["CTranslate2 int8"] - bleu["CTranslate2 float32"],
            -0.3,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200 sentences of pt-en, instead of 2,000 of both models")
    arguments = parser.parse_args()
    header(__file__)
    claims = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pt-en",) if arguments.quick else TESTS:
            claims += measure(name, 200 if arguments.quick else 2000, Path(folder))
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
