"""How well does the attention of trained models align words?

Measures alignment error rates against gold links on given translations (teacher forcing). Methods: the mean of all
heads, naive and shifted by one step; the head that training selects without gold links; and, for comparison, a
diagonal, random links, and the aligner output that comes with the gold links.

Claims: for every model, the head selected by training is at most 0.02 worse than the better mean; for a Transformer
between English and German it beats the diagonal.

The gold text is far from the training domain. The German-English gold is lowercased parliament text, the
Japanese-English gold an encyclopedia of Kyoto (25 words per sentence, many names); the models are trained on captions,
and on textbook sentences of up to 16 words.

    python benchmarks/alignment.py --de MODEL [MODEL ...] --ja MODEL [--quick]

--de: models between English and German. --ja: models between English and Japanese. --quick: trains a model on Multi30k
for 25 seconds and compares it with the diagonal only, on sentences of its own domain.
"""

import argparse
import gzip
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import heedful
from heedful.alignment import STEP_CHOICES, AlignmentMethod, attention_of_words, hard_links
from heedful.metrics.alignment_error import Agreement, GoldAlignment, Links, measure_agreement, parse_gold, parse_links
from heedful.translation.translator import Translator, encode_texts
from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
GOLD = DATA / "gold-alignments"
FILES = {"de": ("deen-bicici", 0), "ja": ("jaen", 1)}  # source and target of the file; the number of its first word

Pair = tuple[list[str], list[str]]  # the words of both sides


def gold_of(language: str) -> tuple[list[Pair], list[GoldAlignment]]:
    """Sentence pairs, foreign words first, and their links; invalid links are dropped."""
    name, first = FILES[language]
    pairs, links = [], []
    texts = (GOLD / f"{name}.src-tgt").read_text(encoding="utf-8").splitlines()
    for text, drawn in zip(texts, (GOLD / f"{name}.gold").read_text(encoding="utf-8").splitlines(), strict=True):
        source, target = (side.split() for side in text.split(" ||| "))
        gold = parse_gold(drawn, first=first)
        inside = [
            frozenset((s, t) for s, t in some if s < len(source) and t < len(target))
            for some in (gold.sure, gold.possible)
        ]
        pairs.append((source, target))
        links.append(GoldAlignment(*inside))
    return pairs, links


def turned(links: Links) -> Links:
    return frozenset((target, source) for source, target in links)


def token_of(pieces: Sequence[str], words: Sequence[str]) -> list[int]:
    """The index of the word with the first letter of each piece, for words joined by spaces."""
    owner = [number for number, word in enumerate(words) for _ in word]
    numbers, at = [], 0
    for piece in pieces:
        body = piece.replace("\u2581", "")
        byte = int(body[3:5], 16) if body.startswith("<0x") else None
        length = len(body) if byte is None else int(not 0x80 <= byte < 0xC0)
        numbers.append(owner[min(at - (byte is not None and not length), len(owner) - 1)])
        at += length
    return numbers


def aligned(
    translator: Translator, pairs: Sequence[Pair], methods: dict[str, AlignmentMethod]
) -> dict[str, list[Links]]:
    """Links of every pair, source first, by every method."""
    texts = [[" ".join(side) for side in sides] for sides in zip(*pairs, strict=True)]
    answers = translator.score_targets(*texts, attention=True)
    ids = encode_texts(translator.source, texts[0])
    found: dict[str, list[Links]] = {name: [] for name in methods}
    for answer, own, (source, target) in zip(answers, ids, pairs, strict=True):
        assert answer.attention is not None
        tokens = answer.hypothesis.tokens
        owners = token_of(translator.target.pieces(tokens), target), token_of(translator.source.pieces(own), source)
        for name, method in methods.items():
            weights = attention_of_words(method(answer.attention[..., -1 - len(own) : -1], len(tokens)), *owners)
            found[name].append(frozenset(hard_links(weights)))
    return found


def diagonal(pairs: Sequence[Pair]) -> list[Links]:
    return [frozenset((min(len(s) - 1, int((j + 0.5) * len(s) / len(t))), j) for j in range(len(t))) for s, t in pairs]


def chance(pairs: Sequence[Pair]) -> list[Links]:
    draw = random.Random(1)
    return [frozenset((draw.randrange(len(s)), j) for j in range(len(t))) for s, t in pairs]


def shown(name: str, one: Agreement) -> float:
    print(f"  {name:28} precision {one.precision:.3f}  recall {one.recall:.3f}  AER {one.error_rate:.3f}", flush=True)
    return one.error_rate


def every_head(translator: Translator, pairs: Sequence[Pair], gold: Sequence[GoldAlignment]) -> tuple[str, Agreement]:
    """The best error rate of any head and step, selected on the gold links; not attainable in practice."""
    answer = translator.score_targets([" ".join(pairs[0][0])], [" ".join(pairs[0][1])], attention=True)[0]
    assert answer.attention is not None
    layers, heads = answer.attention.shape[:2]
    methods = {
        f"{step} layer {layer} head {head}": AlignmentMethod(step, layer, head)
        for step in STEP_CHOICES
        for layer in range(layers)
        for head in range(heads)
    }
    rated = {name: measure_agreement(links, gold) for name, links in aligned(translator, pairs, methods).items()}
    best = min(rated, key=lambda name: rated[name].error_rate)
    return best, rated[best]


def short(pairs: Sequence[Pair], translator: Translator) -> list[int]:
    """Which pairs are no longer than the training pairs of the model."""
    ids = encode_texts(translator.source, [" ".join(source) for source, _ in pairs])
    return [row for row, one in enumerate(ids) if len(one) <= translator.max_source_tokens]


def report(language: str, models: Sequence[str]) -> list[tuple[str, float, float]]:
    pairs, gold = gold_of(language)
    print(f"\n{FILES[language][0]}: {len(pairs)} pairs, {sum(len(one.sure) for one in gold):,} sure links")
    flat = shown("diagonal", measure_agreement(diagonal(pairs), gold))
    shown("random", measure_agreement(chance(pairs), gold))
    shipped = GOLD / f"{FILES[language][0]}.awesome-align.out"
    if shipped.is_file():
        lines = shipped.read_text(encoding="utf-8").splitlines()
        shown("awesome-align (shipped)", measure_agreement([parse_links(line) for line in lines], gold))
    claims = []
    for folder in models:
        translator = heedful.load(folder)
        languages = translator.bundle.description
        backwards = languages.source[:2] == "en"  # the files have the foreign side first
        mine = [(target, source) for source, target in pairs] if backwards else pairs
        theirs = [GoldAlignment(turned(one.sure), turned(one.possible)) for one in gold] if backwards else gold
        kind = f"{languages.model.decoder.kind} {languages.source}-{languages.target}"
        methods = {
            "mean, naive": AlignmentMethod("naive"),
            "mean, shifted": AlignmentMethod("shifted"),
            "best": translator.alignment_method("best"),
        }
        rates = {
            name: shown(f"{kind}: {name}", measure_agreement(links, theirs))
            for name, links in aligned(translator, mine, methods).items()
        }
        told = methods["best"]
        print(f"    best: {told.step}, layer {told.layer}, head {told.head}")
        name, one = every_head(translator, mine, theirs)
        shown(f"{kind}: {name}, by gold", one)
        if known := short(mine, translator):
            some = [mine[row] for row in known], [theirs[row] for row in known]
            print(f"    of {len(known)} pairs no longer than those of training:")
            for way, links in {"diagonal": diagonal(some[0]), **aligned(translator, some[0], methods)}.items():
                shown(f"    {way}", measure_agreement(links, some[1]))
        if language == "de" and languages.model.decoder.kind == "transformer":
            claims.append((f"{kind}: AER of the diagonal - best head's", flat - rates["best"], 0.0))
        claims.append(
            (
                f"{kind}: AER of the better mean - best head's",
                min(rates["mean, naive"], rates["mean, shifted"]) - rates["best"],
                -0.02,
            )
        )
    return claims


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return stream.read().splitlines()


def quick() -> int:
    """In-domain check without gold: whether links of the best head join known translations."""
    known = {
        "a": "ein eine einen einem einer eines",
        "man": "mann",
        "woman": "frau",
        "dog": "hund",
        "two": "zwei",
        "and": "und",
    }
    with tempfile.TemporaryDirectory() as name:
        files = [str(DATA / "multi30k" / f"train.{side}.gz") for side in ("en", "de")]
        command = [
            sys.executable,
            "-m",
            "heedful",
            "train",
            *files,
            "--out",
            name,
            "--time",
            "30s",
            "--recipe",
            "transformer-tiny",
        ]
        subprocess.run([*command, "--set", "train.validate_pairs=50"], check=True, capture_output=True)
        translator = heedful.load(name)
        sides = [lines(DATA / "multi30k" / f"val.{side}.gz")[:100] for side in ("en", "de")]
        pairs = [(one.split(), other.split()) for one, other in zip(*sides, strict=True)]

        def right(links: Sequence[Links]) -> float:
            judged = [
                source[s].lower() in known and target[t].lower() in known[source[s].lower()].split()
                for some, (source, target) in zip(links, pairs, strict=True)
                for s, t in some
                if any(target[t].lower() in words.split() for words in known.values())
            ]
            return float(np.mean(judged))

        found = aligned(translator, pairs, {"best": translator.alignment_method("best")})["best"]
        return verdict(
            [("share of known words linked rightly, above the diagonal's", right(found) - right(diagonal(pairs)), -0.3)]
        )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--de", nargs="+", default=[], metavar="MODEL")
    options.add_argument("--ja", nargs="+", default=[], metavar="MODEL")
    given = options.parse_args()
    header(__file__)
    if given.quick:
        return quick()
    return verdict([claim for language in ("de", "ja") for claim in report(language, getattr(given, language))])


if __name__ == "__main__":
    sys.exit(main())
