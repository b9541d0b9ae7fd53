"""Which faults of a translation does a user not see?

A bundled model, as a user would try it: 50 lines of two or three joined sentences (is a sentence lost?), 40 lines with
placeholders, tags, entities or Markdown links (is one lost or altered?), 20 news sentences in Spanish or French (same
script, wrong language), and 200 sentences in 20 random batchings with every engine (does an answer change?). A fault is
silent if the translation has no flag that names it. Claims: no sentence is lost silently, at least 90 % of the altered
placeholders and 80 % of the sentences in the wrong language are flagged, and no answer depends on its batch.

    python benchmarks/silent_faults.py [--quick] [--model DIR]

The script uses only heedful's public functions, so an older commit can be measured with the same script and model.
"""

import argparse
import random
import re
import sys
import tempfile
from pathlib import Path

import heedful
from heedful import samples
from heedful.translation.translator import Translator
from report import header, read_lines, verdict

CONTENT_WORD = re.compile(r"[^\W\d_]{4,}")
MARKS = (
    "{name}", "{0}", "%s", "%(count)d", "%1$s", "${user}", "<b>Tom</b>", "<br/>", "&nbsp;", "[Tom](https://example.org)",
)  # fmt: skip
ENGINES = {"torch": "best", "ctranslate2": "best", "onnx": "naive", "hugging_face": None}  # -> alignment


def flag_names(translation: heedful.Translation) -> set[str]:
    return {flag.name for flag in translation.flags}


def content_words(text: str) -> set[str]:
    return set(CONTENT_WORD.findall(text.lower()))


def measure_joined_lines(translator: Translator, generator: random.Random) -> tuple[int, int]:
    """(lines of 50 with a lost sentence, of these without a flag)

    A sentence is lost if the output has no content word of its reference, nor of its translation alone.
    """
    pairs = list(zip(read_lines("tatoeba-eng-por/test.por.gz"), read_lines("tatoeba-eng-por/test.eng.gz"), strict=True))
    pairs = [pair for pair in pairs if all(text[-1] in ".!?" for text in pair) and CONTENT_WORD.search(pair[1])]
    lines = [generator.sample(pairs, generator.choice((2, 3))) for _ in range(50)]
    alone = iter(translator([source for line in lines for source, _ in line]))
    lost = []
    for line, translation in zip(
        lines, translator([" ".join(source for source, _ in line) for line in lines]), strict=True
    ):
        words = content_words(translation.text)
        expected = [content_words(f"{reference} {next(alone).text}") for _, reference in line]
        if any(sentence and not sentence & words for sentence in expected):
            lost.append(translation)
    return len(lost), sum(not flag_names(translation) & {"omitted", "length"} for translation in lost)


def measure_marks(translator: Translator, generator: random.Random) -> tuple[int, int]:
    """(lines of 40 with an altered placeholder or tag, of these without a flag)"""
    sentences = [text for text in read_lines("tatoeba-eng-por/test.por.gz") if 4 <= len(text.split()) <= 9]
    lines = []
    for number in range(40):
        words = generator.choice(sentences).split()
        words[generator.randrange(1, len(words) - 1)] = MARKS[number % len(MARKS)]
        lines.append(" ".join(words))
    altered = [
        translation
        for number, translation in enumerate(translator(lines))
        if MARKS[number % len(MARKS)] not in translation.text
    ]
    return len(altered), sum(not flag_names(one) & {"placeholders", "markup", "urls"} for one in altered)


def measure_languages(translator: Translator, generator: random.Random) -> int:
    """Sentences of 20 in the wrong language without a flag about their input."""
    texts = [
        generator.choice(read_lines(f"ntrex/newstest2019-ref.{code}.txt.gz"))
        for code in ("spa", "fra")
        for _ in range(10)
    ]
    return sum(not any(flag.side == "input" for flag in translation.flags) for translation in translator(texts))


def measure_batches(model: Path, folder: Path, sentences: list[str], batchings: int) -> dict[str, int]:
    """Engine -> sentences whose text or links are not the same in all batchings."""
    changed = {}
    for engine, alignment in ENGINES.items():
        if engine != "torch":
            heedful.export(model, folder / engine, to=engine, probes=sentences[:10])
        translator = heedful.load(model if engine == "torch" else folder / engine, threads=1)
        answers: dict[str, set[object]] = {sentence: set() for sentence in sentences}
        for seed in range(batchings):
            shuffled = random.Random(seed).sample(sentences, len(sentences))
            while shuffled:
                size = random.Random(len(shuffled)).randint(1, 64)
                batch, shuffled = shuffled[:size], shuffled[size:]
                for translation in translator(batch, alignment=alignment):
                    answers[translation.source].add((translation.text, translation.alignment))
        changed[engine] = sum(len(different) > 1 for different in answers.values())
        print(f"{engine:13} {changed[engine]} of {len(sentences)} answers change in {batchings} batchings", flush=True)
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="40 sentences in 3 batchings")
    parser.add_argument("--model", type=Path, default=samples.model("pt-en"), help="a model directory, pt to en")
    arguments = parser.parse_args()
    header(__file__)
    translator, generator = heedful.load(arguments.model, threads=1), random.Random(2)
    lost, lost_silently = measure_joined_lines(translator, generator)
    print(f"joined lines: {lost} of 50 lost a sentence, {lost_silently} without a flag", flush=True)
    altered, altered_silently = measure_marks(translator, generator)
    print(f"placeholders and tags: {altered} of 40 altered, {altered_silently} without a flag", flush=True)
    unflagged = measure_languages(translator, generator)
    print(f"wrong language: {unflagged} of 20 without a flag", flush=True)
    sentences = list(dict.fromkeys(read_lines("tatoeba-eng-por/test.por.gz")))
    sentences = random.Random(3).sample(sentences, 40 if arguments.quick else 200)
    with tempfile.TemporaryDirectory() as folder:
        changed = measure_batches(arguments.model, Path(folder), sentences, 3 if arguments.quick else 20)
    return verdict(
        [
            ("lines that lost a sentence silently", -lost_silently, 0),
            ("altered placeholders and tags that are flagged", 1 - altered_silently / max(1, altered), 0.9),
            ("wrong language that is flagged", 1 - unflagged / 20, 0.8),
            ("answers that depend on the batch", -sum(changed.values()), 0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
