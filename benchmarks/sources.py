"""Sources that are not text: language models, and models that describe pictures.

    python benchmarks/sources.py [--quick] [--only PART ...] [--runs DIR] [--seeds 3] [--languages en pt ru]
                                 [--lm-time 60m] [--caption-time 10m] [--strip-time 30m] [--formula-time 30m]
                                 [--maps DIR]

    lm        bits per character of a Transformer and an LSTM on held-out sentences, below those of a Kneser-Ney 5-gram
              with the same subwords (benchmarks/kneser_ney.py); repetition and distinct n-grams of what they write
    captions  names of emoji that were not in training: attention against the same CNN with one vector, and against the
              name of the nearest picture, by pixels and by the features of that CNN
    strips    rows of 2 to 5 emoji: is the attention of a word on the emoji that the word names?
    formulas  pictures of formulas to LaTeX: 95 % of the training part, exactly
    resume    a training on pictures that is killed (kill -9) 20 times ends with the same bits
    prepare   1 and 2 workers prepare the same bytes from pictures
    hostile   500 truncated, mislabeled, huge and malicious pictures are rejected, with their reasons, in little memory

All models are trained by `heedful train`. Checkpoints are chosen on validation data, and nothing is chosen on the test
data. With --runs, corpora and models stay in DIR, and finished models are not trained again.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from importlib import import_module
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

import heedful
import kneser_ney
import source_data
from heedful import config
from heedful.engines.base import EncodedSource, SamplingOptions
from heedful.inputs.kinds import make_input
from heedful.metrics import interval
from heedful.metrics.ngrams import chrf_counts
from heedful.metrics.perplexity import measure_perplexity
from heedful.text import tokenizer as tokenizers
from heedful.text.tokenizer import BOS, EOS, Tokenizer
from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

Array = NDArray[Any]
Claim = tuple[str, float, float]
HEEDFUL = [sys.executable, "-m", "heedful"]
RESAMPLINGS = 1_000


@dataclass(frozen=True)
class Options:
    """What to measure, where, and for how long to train."""

    folder: Path
    quick: bool
    seeds: int
    languages: Sequence[str]
    lm_time: str
    caption_time: str
    strip_time: str
    formula_time: str
    maps: Path | None


# ----------------------------------------------------------------------------------------------------------- settings

NO_CLEANING = {"drop": ["empty"], "duplicates": "keep", "overlap": "keep"}  # the models learn from exactly these lines
TRAIN = {"label_smoothing": 0.0, "ema": 0.999, "clip_norm": 1.0}


def transformer_lm(width: int) -> dict[str, Any]:
    return {
        "width": width, "positions": "sinusoidal", "scale_embeddings": True, "dropout": 0.1,
        "encoder": {"kind": "nothing"},
        "decoder": {
            "kind": "transformer", "layers": 4, "heads": 4, "feedforward_size": 4 * width, "norm": "pre", "dropout": 0.1
        },
    }  # fmt: skip


def lstm_lm(width: int) -> dict[str, Any]:
    return {
        "width": width, "scale_embeddings": True, "output_bias": True, "dropout": 0.1,
        "encoder": {"kind": "nothing"},
        "decoder": {"kind": "recurrent", "cell": "lstm", "width": 2 * width, "initial_state": "zero", "dropout": 0.1},
    }  # fmt: skip


LANGUAGE_MODELS = {"transformer": transformer_lm, "lstm": lstm_lm}


def captioner(width: int = 256, *, pool: bool = False, dropout: float = 0.2) -> dict[str, Any]:
    """Show, Attend and Tell: a CNN, and an LSTM with additive attention; with `pool`, the CNN gives one vector."""
    return {
        "width": width, "scale_embeddings": True, "output_bias": True, "dropout": dropout,
        "encoder": {"kind": "patches", "stem": "convolution", "pool": pool},
        "decoder": {
            "kind": "recurrent", "cell": "lstm", "width": width, "query_from": "previous", "gated_context": True,
            "dropout": dropout, "attention": {"score": "additive"},
        },
    }  # fmt: skip


CAPTIONERS = {"attention": False, "one vector": True}  # name -> pool


def quick_steps(options: Options, time_limit: str, steps: int) -> dict[str, Any]:
    """How long to train."""
    quick = {"steps": steps, "validate_every": steps, "warmup_steps": 5, "learning_rate": 5e-3, "ema": False}
    return quick if options.quick else {"time": time_limit}


def settings_tree(
    folder: Path, splits: tuple[str, str], *, tokenizer: Mapping[str, Any], train: Mapping[str, Any], **sections: Any
) -> dict[str, Any]:
    """Settings for the tables or texts of a folder; `splits` are the files of training and validation."""
    files = [str(folder / name) for name in splits]
    return {
        "target": "en",
        "data": {
            "prepared_dir": str(folder / "prepared"),
            "train": [{"files": files[0]}],
            "validation": [{"files": files[1]}],
        },
        "clean": NO_CLEANING,
        "tokenizer": dict(tokenizer),
        "train": TRAIN | dict(train),
        **sections,
    }


def train(options: Options, name: str, tree: Mapping[str, Any]) -> Path:
    """`heedful train`: the model directory. A finished model is kept, and an interrupted training continues."""
    run = options.folder / name.replace(" ", "-")
    model = run / "model"
    if model.exists():
        return model
    settings = config.parse_settings({**tree, "train": {**tree["train"], "output_dir": str(run)}})
    path = run.with_suffix(".toml")
    path.write_text(config.to_toml(settings), encoding="utf-8")
    begin = time.perf_counter()
    # --force: rules of `heedful check` that warn about short or repetitive captions do not stop the training
    done = subprocess.run([*HEEDFUL, "train", str(path), "--force"], capture_output=True, text=True, check=False)
    path.with_suffix(".log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"{name}: {(done.stdout + done.stderr)[-2000:]}")
    steps = re.search(r"after ([\d,]+) steps", done.stdout + done.stderr)
    print(f"# {name}: {steps[1] if steps else '?'} steps, {time.perf_counter() - begin:.0f} s in all", flush=True)
    return model


# ----------------------------------------------------------------------------------------------------- language model

SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam 5": {"beam": 5},
    "temperature 1": {"sampling": SamplingOptions(seed=1)},
    "temperature 0.7": {"sampling": SamplingOptions(0.7, seed=1)},
    "top-k 40": {"sampling": SamplingOptions(top_k=40, seed=1)},
    "top-p 0.9": {"sampling": SamplingOptions(top_p=0.9, seed=1)},
}
PREFIX_WORDS = 2


def measure_language_models(options: Options) -> list[Claim]:
    folder = options.folder / "sentences"
    folder.mkdir(exist_ok=True)
    num_test, max_sentences, vocab_size = (500, 12_000, 1_000) if options.quick else (20_000, None, 8_000)
    sentences = source_data.write_sentences(folder, num_test, max_sentences)
    path = folder / "tokenizer"
    if not path.exists():
        tokenizers.train("bpe", sentences["train"], vocab_size).save(path)
    tokenizer = tokenizers.load(path)
    print(f"# {', '.join(f'{name} {len(lines):,}' for name, lines in sentences.items())} sentences", flush=True)
    # Neural models need validation sentences, n-grams do not; in half a minute, no network learns as much as 5-grams.
    known = [*sentences["train"], *sentences["valid"]]
    orders = (1,) if options.quick else (3, 5)
    baselines = {order: n_gram_figures(tokenizer, known, sentences["test"], order) for order in orders}
    claims = []
    for kind, make_model in list(LANGUAGE_MODELS.items())[: 1 if options.quick else None]:
        tree = settings_tree(
            folder,
            ("train.txt", "valid.txt"),
            tokenizer={"files": [str(path)]},
            train={"batch_tokens": 1024 if options.quick else 4096, "learning_rate": 2e-3}
            | quick_steps(options, options.lm_time, 40),
            input={"kind": "none"},
            model=make_model(64 if options.quick else 256),
        )
        directory = train(options, f"lm-{kind}", tree)
        done = subprocess.run(
            [*HEEDFUL, "evaluate", str(directory), str(folder / "test.txt"), "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        figures = json.loads(done.stdout)["scores"]
        print_perplexity(kind, figures)
        order = max(baselines)
        what = f"{kind}: bits per character of the Kneser-Ney {order}-gram, minus its own"
        claims.append((what, baselines[order]["bits"] - figures["bits"], 0.0))
        print_samples(kind, directory, sentences, 10 if options.quick else 500)
    return claims


def n_gram_figures(tokenizer: Tokenizer, known: Sequence[str], test: Sequence[str], order: int) -> dict[str, float]:
    """Perplexity of an n-gram model with modified Kneser-Ney smoothing, as `heedful evaluate` defines it."""
    begin = time.perf_counter()
    encoded = tokenizer.encode(known)
    model = kneser_ney.fit([[BOS, *ids, EOS] for ids in encoded], tokenizer.size, order)
    test_ids = tokenizer.encode(test)
    log2_probs = model.log2_probs([[BOS, *ids, EOS] for ids in test_ids])
    log_probability = float(sum(probs.sum() for probs in log2_probs)) * log(2)
    figures = measure_perplexity(log_probability, test_ids, test)
    print_perplexity(f"Kneser-Ney {order}-gram", figures, f"{time.perf_counter() - begin:.0f} s")
    return figures


def print_perplexity(name: str, figures: Mapping[str, float], more: str = "") -> None:
    print(
        f"{name:18} bits per character {figures['bits']:.4f}   perplexity per token {figures['perplexity']:8.2f}, "
        f"per word {figures['word_perplexity']:8.2f}   {more}",
        flush=True,
    )


def print_samples(kind: str, directory: Path, sentences: Mapping[str, Sequence[str]], count: int) -> None:
    """How repetitive texts are, by decoding method; all continue the first words of the same held-out sentences."""
    chosen = [text for text in sentences["test"] if len(text.split()) >= PREFIX_WORDS + 4][:count]
    prefixes = [" ".join(text.split()[:PREFIX_WORDS]) for text in chosen]
    model, known = heedful.load(directory), set(sentences["train"])
    print(f"\n{kind}: {len(prefixes)} texts that continue the first {PREFIX_WORDS} words of held-out sentences")
    print(f"{'':16} {'words':>6} {'repeated':>9} {'distinct-1':>11} {'distinct-2':>11} {'distinct-3':>11} {'known':>7}")
    for name, texts in (("written by people", chosen), *samples(model, prefixes)):
        words = [text.lower().split() for text in texts]
        repeated = mean(repetition(each) for each in words)
        shares = "".join(f"{distinct(words, n):12.3f}" for n in (1, 2, 3))
        copied = mean(text in known for text in texts)
        print(f"{name:16} {mean(map(len, words)):6.1f} {repeated:9.1%}{shares} {copied:7.1%}", flush=True)
    print("repeated: words of a text that it already had; known: texts that are sentences of the training part\n")


def samples(model: Any, prefixes: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for name, method in SAMPLERS.items():
        yield name, [continuation.text for continuation in model(list(prefixes), **method)]


def repetition(words: Sequence[str]) -> float:
    """1 - different words / words"""
    return 1 - len(set(words)) / len(words) if words else 0.0


def distinct(texts: Sequence[Sequence[str]], n: int) -> float:
    """Different n-grams / n-grams, over all texts (Li et al. 2016)."""
    counts = Counter(gram for words in texts for gram in zip(*(words[at:] for at in range(n)), strict=False))
    return len(counts) / max(1, counts.total())


# ------------------------------------------------------------------------------------------------------------ captions


def measure_captions(options: Options) -> list[Claim]:
    claims = []
    for language in options.languages:
        folder = options.folder / f"emoji-{language}"
        splits = source_data.write_emoji(folder, language, 100 if options.quick else None)
        sizes = (f"{name} {len(members)}" for name, members in splits.items())
        print(f"\n# {language}: {', '.join(sizes)} pictures; {len({e.group for e in splits['test']})} groups in test")
        outputs: dict[str, dict[str, list[list[str]]]] = {}  # name -> split -> seed
        for seed in range(1, options.seeds + 1):
            for kind, pool in CAPTIONERS.items():
                directory = train(
                    options, f"captions-{language}-{kind}-{seed}", caption_tree(options, folder, pool, seed)
                )
                for split in ("test", "special"):
                    texts = describe(directory, folder, splits[split])
                    outputs.setdefault(kind, {}).setdefault(split, []).append(texts)
            if seed == 1:
                for split in ("test", "special"):
                    for name, features in (("pixels", pixels), ("CNN features", cnn_features(directory))):
                        near = nearest(features(folder, splits["train"]), features(folder, splits[split]))
                        texts = [splits["train"][row].captions[language] for row in near]
                        outputs.setdefault(f"nearest, {name}", {})[split] = [texts]
        for split in ("test", "special"):
            print(f"\n{language}, {split}{' (flags and keycaps)' if split == 'special' else ''}: chrF, exact match")
            for name, results in outputs.items():
                print_captions(name, results[split], [emoji.captions[language] for emoji in splits[split]])
        texts_of = {name: results["test"] for name, results in outputs.items()}
        claims += compare_by_group(language, splits["test"], texts_of, -100.0 if options.quick else 0.0)
    return claims


def caption_tree(options: Options, folder: Path, pool: bool, seed: int) -> dict[str, Any]:
    width = 64 if options.quick else 256
    return settings_tree(
        folder,
        ("train.tsv", "valid.tsv"),
        tokenizer={"vocab_size": 1_000},
        train={
            "batch_tokens": 4096, "learning_rate": 1e-3, "coverage_penalty": 0.0 if pool else 0.1,
            "validate_pairs": 50 if options.quick else 1_000,
        } | quick_steps(options, options.caption_time, 30),
        seed=seed,
        input={"kind": "image", "patch": 8 if options.quick else 4, "shift": 2, "crop": 0.1, "color": 0.1},
        model=captioner(width, pool=pool),
    )  # fmt: skip


def describe(directory: Path, folder: Path, members: Sequence[source_data.Emoji]) -> list[str]:
    """The captions that a model gives to emoji."""
    model = heedful.load(directory)
    return [caption.text for caption in model([str(picture_path(folder, emoji)) for emoji in members])]


def picture_path(folder: Path, emoji: source_data.Emoji) -> Path:
    return folder / "pictures" / f"{emoji.code}.png"


Features = Callable[[Path, Sequence[source_data.Emoji]], Array]


def pixels(_folder: Path, members: Sequence[source_data.Emoji]) -> Array:
    return np.stack([np.asarray(source_data.read_pictures()[emoji.code], np.float32).ravel() for emoji in members])


def cnn_features(directory: Path) -> Features:
    """The vector of the whole picture, by the encoder of a model with one vector."""
    import torch

    model: Any = heedful.load(directory)
    images = make_input(model.bundle.description.input)

    def features(folder: Path, members: Sequence[source_data.Emoji]) -> Array:
        rows = np.stack([images.read_row(picture_path(folder, emoji)) for emoji in members])
        vectors = []
        with torch.inference_mode():
            for block in np.array_split(rows, max(1, len(rows) // 256)):
                patches = torch.from_numpy(block).float() / 255
                memory = model.engine.model.encoder(patches, torch.ones(patches.shape[:2], dtype=torch.bool))
                vectors.append(memory.mean().numpy())
        return np.concatenate(vectors)

    return features


def nearest(known: Array, new: Array) -> list[int]:
    """For each new row, the known row with the smallest Euclidean distance."""
    distances = (known**2).sum(1) - 2 * new @ known.T
    return [int(row) for row in distances.argmin(1)]


def print_captions(name: str, seeds: Sequence[Sequence[str]], references: Sequence[str]) -> None:
    scores = [[interval(metric, texts, references) for metric in ("chrf", "exact")] for texts in seeds]
    for number, row in enumerate(scores, 1):
        label = f"{name}, seed {number}" if len(scores) > 1 else name
        shown = "   ".join(f"{score.value:6.2f} ± {score.margin:4.2f}" for score in row)
        print(f"  {label:24} {shown}", flush=True)
    if len(scores) > 1:
        columns = ([score.value for score in column] for column in zip(*scores, strict=True))
        shown = "   ".join(f"{mean(column):6.2f} (sd {stdev(column):.2f})" for column in columns)
        print(f"  {name + ', mean':24} {shown}", flush=True)


def compare_by_group(
    language: str, emoji: Sequence[source_data.Emoji], outputs: Mapping[str, Sequence[Sequence[str]]], min_gain: float
) -> list[Claim]:
    """chrF in which every group counts as one picture, however many skin tones it has; intervals resample groups."""
    names = sorted({each.group for each in emoji})
    groups = np.array([names.index(each.group) for each in emoji])
    draw = np.random.default_rng(1)
    drawn = [np.bincount(draw.integers(0, len(names), len(names)), minlength=len(names)) for _ in range(RESAMPLINGS)]
    weights = np.stack([np.ones(len(names)), *drawn])[:, groups] / np.bincount(groups)[groups]
    references = [each.captions[language] for each in emoji]
    scores = {name: mean_chrf(seeds, references, weights) for name, seeds in outputs.items()}
    print(f"\n{language}, test: chrF if each of the {len(names)} groups counts once (95 % of resampled groups)")
    claims = []
    for name, values in scores.items():
        gain = scores["attention"] - values
        low, high, gain_low, gain_high = (f(each) for each in (values, gain) for f in (low_end, high_end))
        print(f"  {name:24} {values[0]:6.2f} ({low:.2f} to {high:.2f})", end="")
        print(f"   attention - this: {gain[0]:+.2f} ({gain_low:+.2f} to {gain_high:+.2f})", flush=True)
        if name != "attention":
            claims.append((f"{language}: chrF of attention, minus that of {name}", float(gain[0]), min_gain))
    return claims


def low_end(values: Array) -> float:
    return float(np.percentile(values, 2.5))


def high_end(values: Array) -> float:
    return float(np.percentile(values, 97.5))


def mean_chrf(seeds: Sequence[Sequence[str]], references: Sequence[str], weights: Array) -> Array:
    """For every row of weights [R, N], the mean over seeds of 100 F_2(P, R) of the weighted counts of n-grams."""
    counts = np.array(
        [
            [[astuple(each) for each in chrf_counts(*pair)] for pair in zip(texts, zip(references), strict=True)]
            for texts in seeds
        ]
    )  # [seed, picture, order, 3]: in the hypothesis, in the reference, in both
    hypothesis, reference, matches = np.moveaxis(np.einsum("rn,sni...->sri...", weights, counts), -1, 0)
    precision = (matches / np.maximum(hypothesis, 1e-9)).mean(-1)
    recall = (matches / np.maximum(reference, 1e-9)).mean(-1)
    scores: Array = (500 * precision * recall / np.maximum(4 * precision + recall, 1e-9)).mean(0)
    return scores


# -------------------------------------------------------------------------------------------------------------- strips


def measure_strips(options: Options) -> list[Claim]:
    folder = options.folder / "strips"
    counts = (("train", 100), ("valid", 10), ("test", 10)) if options.quick else source_data.STRIP_COUNTS
    splits = source_data.write_strips(folder, counts)
    test, scores, models = splits["test"], {}, {}
    sizes = ", ".join(f"{name} {len(strips):,}" for name, strips in splits.items())
    print(f"\n# strips of {len(source_data.strip_emoji())} emoji: {sizes}")
    for kind, pool in CAPTIONERS.items():
        tree = settings_tree(
            folder,
            ("train.tsv", "valid.tsv"),
            tokenizer={"vocab_size": 1_000},
            train={
                "batch_tokens": 4096, "learning_rate": 1e-3, "coverage_penalty": 0.0 if pool else 0.1,
            } | quick_steps(options, options.strip_time, 20),
            input={"kind": "image", "height": 32, "width": 160, "patch": 8},
            model=captioner(64 if options.quick else 256, pool=pool, dropout=0.1),
        )  # fmt: skip
        models[kind] = train(options, f"strips-{kind}", tree)
        texts = [caption.text for caption in heedful.load(models[kind])([str(folder / strip.path) for strip in test])]
        print_captions(kind, [texts], [strip.caption for strip in test])
        scores[kind] = interval("chrf", texts, [strip.caption for strip in test]).value
    weights = attention_in_boxes(models["attention"], folder, test)
    print(f"attention on the right emoji: mean of {len(weights):,} words {mean(weights):.3f}, "
          f"{mean(weight >= 0.8 for weight in weights):.1%} of the words have 0.8 or more, "
          f"tenth percentile {np.percentile(weights, 10):.3f}", flush=True)  # fmt: skip
    if options.maps:
        draw_maps(models["attention"], folder, test[:10], options.maps)
    return [
        ("strips: chrF of attention, minus that of one vector", scores["attention"] - scores["one vector"],
         -100.0 if options.quick else 10.0),
        ("strips: mean weight of a word on its emoji", mean(weights), 0.1 if options.quick else 0.8),
    ]  # fmt: skip


@dataclass(frozen=True)
class WordMap:
    """A word of a caption, its emoji (None for `and`), and its weights over the slots of the picture."""

    word: str
    emoji: int | None
    weights: Array


def word_maps(model: Any, folder: Path, strip: source_data.Strip) -> list[WordMap]:
    """The attention of every word while the model reads the reference: the mean of its pieces, layers and heads."""
    images = make_input(model.bundle.description.input)
    (ids,) = model.target.encode([strip.caption])
    (result,) = model.engine.score_targets(
        [EncodedSource(images.read_row(folder / strip.path), 1)], [ids], attention=True
    )
    words = [(word, number) for number, caption in enumerate(strip.captions) for word in [*caption.split(), "and"]][:-1]
    begins = np.array([piece.startswith("\u2581") for piece in model.target.pieces(ids)])
    begins[0] = True
    assert begins.sum() == len(words), strip.caption
    of_pieces = result.attention.mean((0, 1))[: len(ids)]
    of_words = np.stack([part.mean(0) for part in np.split(of_pieces, np.flatnonzero(begins)[1:])])
    return [
        WordMap(word, None if word == "and" else number, weights)
        for (word, number), weights in zip(words, of_words, strict=True)
    ]


def attention_in_boxes(directory: Path, folder: Path, strips: Sequence[source_data.Strip]) -> list[float]:
    """For every word of every caption, the share of its attention on the emoji that the caption names."""
    model: Any = heedful.load(directory)
    images: Any = make_input(model.bundle.description.input)
    slots = np.array(images.boxes)
    centers = (slots[:, 0] + slots[:, 2]) / 2
    shares = []
    for strip in strips:
        for each in word_maps(model, folder, strip):
            if each.emoji is not None:
                left, _, right, _ = strip.boxes[each.emoji]
                shares.append(float(each.weights[(left < centers) & (centers < right)].sum()))
    return shares


def draw_maps(directory: Path, folder: Path, strips: Sequence[source_data.Strip], out: Path) -> None:
    """One PNG per strip: for every word, the picture with the attention of the word; white is none."""
    from PIL import Image, ImageDraw

    model: Any = heedful.load(directory)
    settings = model.bundle.description.input
    rows, columns, scale, margin = settings.height // settings.patch, settings.width // settings.patch, 3, 14
    out.mkdir(parents=True, exist_ok=True)
    for number, strip in enumerate(strips, 1):
        maps = word_maps(model, folder, strip)
        size = (settings.width * scale, settings.height * scale)
        picture = Image.open(folder / strip.path).convert("RGB").resize(size, Image.Resampling.NEAREST)
        page = Image.new("RGB", (size[0], len(maps) * (size[1] + margin)), "white")
        for line, each in enumerate(maps):
            light = np.uint8(255 * each.weights.reshape(rows, columns) / each.weights.max())
            mask = Image.fromarray(light).resize(size, Image.Resampling.NEAREST)
            faded = Image.blend(picture, Image.new("RGB", size, "white"), 0.8)
            top = line * (size[1] + margin)
            page.paste(Image.composite(picture, faded, mask), (0, top + margin))
            ImageDraw.Draw(page).text((2, top + 1), each.word, fill="black")
        page.save(out / f"strip-{number:02}.png")


# ------------------------------------------------------------------------------------------------------------ formulas


def measure_formulas(options: Options) -> list[Claim]:
    folder = options.folder / "formulas"
    folder.mkdir(exist_ok=True)
    pairs = source_data.write_formulas(folder, 20 if options.quick else None)["train"]
    source_data.write_lines(folder / "known.tsv", ["\t".join(pair) for pair in pairs[:100]])
    tree = settings_tree(
        folder,
        ("train.tsv", "known.tsv"),  # the aim is to overfit
        tokenizer={"vocab_size": 400 if options.quick else 1_000},
        train={"batch_tokens": 4096, "learning_rate": 1e-3, "validate_pairs": 2 if options.quick else 100}
        | quick_steps(options, options.formula_time, 20),
        input={"kind": "image", "height": 48, "width": 256, "patch": 8},
        model=captioner(64 if options.quick else 256, dropout=0.0),
    )
    model = heedful.load(train(options, "formulas", tree))
    texts = [formula.text for formula in model([str(folder / path) for path, _ in pairs], beam=1)]
    print(f"\n{len(pairs)} formulas of the training part: chrF, exact match")
    print_captions("attention", [texts], [formula for _, formula in pairs])
    exact = interval("exact", texts, [formula for _, formula in pairs]).value
    return [("formulas: exact matches in the training part, in percent", exact, 0.0 if options.quick else 95.0)]


# -------------------------------------------------------------------------------------------------------- same results


def few_pictures(options: Options, name: str, corpora: int = 4) -> tuple[Path, dict[str, Any]]:
    """A folder of emoji with several tables, and settings for it."""
    folder = options.folder / name
    splits = source_data.write_emoji(folder, "en", 200 if options.quick else None)
    lines = [f"pictures/{emoji.code}.png\t{emoji.captions['en']}" for emoji in splits["train"]]
    ends = [len(lines) * number // corpora for number in range(corpora + 1)]
    for number, (first, last) in enumerate(pairwise(ends)):
        source_data.write_lines(folder / f"part{number}.tsv", lines[first:last])
    tree = settings_tree(
        folder, ("train.tsv", "valid.tsv"), tokenizer={"vocab_size": 500}, train={},
        input={"kind": "image", "patch": 8, "shift": 2, "crop": 0.1, "color": 0.1},
        model=captioner(32),
    )  # fmt: skip
    tree["data"]["train"] = [{"files": str(folder / f"part{number}.tsv")} for number in range(corpora)]
    return folder, tree


def measure_resume(options: Options) -> list[Claim]:
    kill9, runs = import_module("kill9"), import_module("support.training_runs")
    folder, tree = few_pictures(options, "resume", 1)
    kills, steps = (2, 30) if options.quick else (20, 300)
    short_steps = {**runs.TRAIN, "steps": steps, "batch_tokens": 400, "save_every": 1, "validate_pairs": 8,
                   "validate_every": steps // 3}  # fmt: skip

    def settings(run: Path) -> Any:
        return config.parse_settings({**tree, "train": {**short_steps, "output_dir": str(run)}})

    def start(settings: Any) -> Callable[[], Any]:
        path = runs.write_settings(settings)
        return lambda: runs.TrainingProcess("train", str(path), "--force", log=path.with_suffix(".log"))

    case = kill9.Case("pictures", settings, start, steps)
    case.undisturbed(folder)
    claims: list[Claim] = kill9.make_claims(case, [case.killed(folder, 1, kills)], 1, kills)
    return claims


def measure_prepare(options: Options) -> list[Claim]:
    hostile = import_module("hostile")
    folder, tree = few_pictures(options, "prepare")
    settings = config.parse_settings({**tree, "train": {"output_dir": str(folder / "run")}})
    (folder / "heedful.toml").write_text(config.to_toml(settings), encoding="utf-8")
    trees = [hostile.prepared_by(workers, folder)[0] for workers in (1, 2)]
    differing = sum(trees[0].get(name) != trees[1].get(name) for name in trees[0].keys() | trees[1].keys())
    return [
        ("prepare: files", len(trees[0]), 4),
        ("prepare: minus files that differ between 1 and 2 workers", -differing, 0),
    ]


def measure_hostile(options: Options) -> list[Claim]:
    pictures = import_module("support.hostile_pictures")
    folder = options.folder / "hostile"
    folder.mkdir(exist_ok=True)
    hostile = pictures.write_hostile_pictures(folder, 40 if options.quick else 500)
    begin = time.perf_counter()
    reasons, growth = pictures.read_in_process([each.path for each in hostile])
    seconds = time.perf_counter() - begin
    print(f"\n{len(hostile)} pictures of {len({each.kind for each in hostile})} kinds: {seconds:.1f} s, "
          f"memory grows by {growth / 1e6:.0f} MB", flush=True)  # fmt: skip
    rejected = 0
    for each, reason in zip(hostile, reasons, strict=True):
        expected = reason is not None and re.search(each.reason, reason) is not None
        rejected += expected
        if not expected:
            print(f"  {each.kind}: {reason or 'not rejected'}")
    return [
        ("hostile: share of the pictures that are rejected with the reason", rejected / len(hostile), 1.0),
        ("hostile: minus the growth of memory in MB", -growth / 1e6, -300.0),
    ]


PARTS: dict[str, Callable[[Options], list[Claim]]] = {
    "lm": measure_language_models,
    "captions": measure_captions,
    "strips": measure_strips,
    "formulas": measure_formulas,
    "resume": measure_resume,
    "prepare": measure_prepare,
    "hostile": measure_hostile,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps on few lines, with looser bounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep corpora and models here")
    parser.add_argument("--seeds", type=int, default=3, help="of the models that describe emoji")
    parser.add_argument("--languages", nargs="+", choices=("en", "pt", "ru", "de", "fr", "es"),
                        default=["en", "pt", "ru"], metavar="LANGUAGE", help="of the captions of emoji")  # fmt: skip
    parser.add_argument("--lm-time", default="60m", help="of each language model")
    parser.add_argument("--caption-time", default="10m", help="of each seed of each model")
    parser.add_argument("--strip-time", default="30m", help="of each model")
    parser.add_argument("--formula-time", default="30m")
    parser.add_argument("--maps", type=Path, metavar="DIR", help="draw the attention on ten strips")
    arguments = parser.parse_args()
    header(__file__)
    if arguments.quick:
        arguments.seeds, arguments.languages = 1, ["en"]
    with tempfile.TemporaryDirectory(prefix="sources-") as name:
        folder = (arguments.runs or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(
            folder, arguments.quick, arguments.seeds, arguments.languages, arguments.lm_time, arguments.caption_time,
            arguments.strip_time, arguments.formula_time, arguments.maps,
        )  # fmt: skip
        return verdict([claim for part in arguments.only for claim in PARTS[part](options)])


if __name__ == "__main__":
    sys.exit(main())
