"""How well does the attention of trained models align words?

Measures alignment error rates against gold links on given translations (teacher forcing). Methods: the mean of all
heads, naive and shifted by one step; the head that training selects without gold links; and, for comparison, a
diagonal, random links, and the aligner output that comes with the gold links.

Claims: for every model, the head selected by training is at most 0.02 worse than the better mean; for a Transformer
between English and German it beats the diagonal.

The gold text is far from the training domain. The German-English gold is lowercased parliament text, the
Japanese-English gold an encyclopedia of Kyoto (25 words per sentence, many names); the models are trained on captions,
and on textbook sentences of up to 16 words.

    python benchmarks/alignment.py [--de MODEL ...] [--ja MODEL ...] [--time 20m] [--quick]

--de: models between English and German; --ja: between English and Japanese. Without them, a model is trained on
Multi30k. --quick: the bundled sample model, held to the diagonal on sentences of its own domain.
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

from heedful.alignment import STEP_CHOICES, AlignmentMethod, attention_of_words, hard_links
from heedful.metrics.alignment_error import Agreement, GoldAlignment, Links, measure_agreement, parse_gold, parse_links
from heedful.samples import model as sample_model
from heedful.samples import sample_folder
from heedful.translation.loading import load
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


def align(translator: Translator, pairs: Sequence[Pair], methods: dict[str, AlignmentMethod]) -> dict[str, list[Links]]:
    """Links of every pair, source first, by every method."""
    texts = [[" ".join(side) for side in sides] for sides in zip(*pairs, strict=True)]
    answers = translator.score_targets(*texts, attention=True)
    ids = encode_texts(translator.source, texts[0])
    links: dict[str, list[Links]] = {name: [] for name in methods}
    for answer, own, (source, target) in zip(answers, ids, pairs, strict=True):
        assert answer.attention is not None
        tokens = answer.hypothesis.tokens
        owners = token_of(translator.target.pieces(tokens), target), token_of(translator.source.pieces(own), source)
        for name, method in methods.items():
            weights = attention_of_words(method(answer.attention[..., -1 - len(own) : -1], len(tokens)), *owners)
            links[name].append(frozenset(hard_links(weights)))
    return links


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
    rated = {name: measure_agreement(links, gold) for name, links in align(translator, pairs, methods).items()}
    best = min(rated, key=lambda name: rated[name].error_rate)
    return best, rated[best]


def short_rows(pairs: Sequence[Pair], translator: Translator) -> list[int]:
    """Which of them are no longer than what the model was trained on."""
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
        translator = load(folder)
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
            for name, links in align(translator, mine, methods).items()
        }
        best = methods["best"]
        print(f"    best: {best.step}, layer {best.layer}, head {best.head}")
        name, one = every_head(translator, mine, theirs)
        shown(f"{kind}: {name}, by gold", one)
        if rows := short_rows(mine, translator):
            short_pairs, short_gold = [mine[row] for row in rows], [theirs[row] for row in rows]
            print(f"    of {len(rows)} pairs no longer than those of training:")
            for way, links in {"diagonal": diagonal(short_pairs), **align(translator, short_pairs, methods)}.items():
                shown(f"    {way}", measure_agreement(links, short_gold))
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


KNOWN_WORDS = {  # of the bundled sample: Portuguese -> English
    "tom": ("tom",), "mary": ("mary",), "maria": ("mary",), "boston": ("boston",), "aqui": ("here",),
    "hoje": ("today",), "feliz": ("happy",), "ele": ("he", "him"), "ela": ("she", "her"), "minha": ("my", "mine"),
    "meu": ("my", "mine"), "com": ("with",), "dinheiro": ("money",), "casa": ("house", "home"), "onde": ("where",),
}  # fmt: skip


def share_of_known_words(links: Sequence[Links], pairs: Sequence[Pair]) -> float:
    """Of the English words whose Portuguese word is in the sentence, the share that is linked to it."""
    judged = []
    for sentence_links, sides in zip(links, pairs, strict=True):
        source, target = ([word.lower().strip(".,?!") for word in side] for side in sides)
        for position, word in enumerate(target):
            expected = {(at, position) for at, other in enumerate(source) if word in KNOWN_WORDS.get(other, ())}
            if expected:
                judged.append(bool(expected & sentence_links))
    return float(np.mean(judged))


def quick() -> int:
    """The bundled sample on sentences of its own domain, without gold links: do links join words that belong together?

    The sample is trained to the end. What a model learns in half a minute depends on the machine.
    """
    translator = load(sample_model("pt-en"))
    sides = [gzip.decompress((sample_folder("pt-en") / f"test.{code}.gz").read_bytes()) for code in ("pt", "en")]
    texts = [side.decode().splitlines() for side in sides]
    pairs = [(source.split(), target.split()) for source, target in zip(*texts, strict=True)]
    links = align(translator, pairs, {"best": translator.alignment_method("best")})["best"]
    by_attention, by_diagonal = share_of_known_words(links, pairs), share_of_known_words(diagonal(pairs), pairs)
    print(f"known words that are linked rightly: {by_attention:.3f}, by the diagonal {by_diagonal:.3f}")
    return verdict([("share of known words linked rightly, above the diagonal's", by_attention - by_diagonal, 0.0)])


def train_model(folder: str, time: str) -> str:
    """An English-German Transformer, trained on Multi30k."""
    files = [str(DATA / "multi30k" / f"train.{code}.gz") for code in ("en", "de")]
    command = [sys.executable, "-m", "heedful", "train", *files, "--out", folder, "--time", time]
    subprocess.run([*command, "--recipe", "transformer-tiny"], check=True, capture_output=True)
    return folder


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="the bundled sample, without gold links")
    options.add_argument("--de", nargs="+", default=[], metavar="MODEL", help="models between English and German")
    options.add_argument("--ja", nargs="+", default=[], metavar="MODEL", help="models between English and Japanese")
    options.add_argument("--time", default="20m", help="to train a model in, if none is given")
    arguments = options.parse_args()
    header(__file__)
    if arguments.quick:
        return quick()
    with tempfile.TemporaryDirectory() as folder:
        models = {"de": arguments.de, "ja": arguments.ja}
        if not any(models.values()):
            models["de"] = [train_model(folder, arguments.time)]
        return verdict(
            [claim for language, folders in models.items() if folders for claim in report(language, folders)]
        )


if __name__ == "__main__":
    sys.exit(main())
