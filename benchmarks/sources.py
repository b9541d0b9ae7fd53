"""Sources that are not text: language models, and models that describe pictures.

    python benchmarks/sources.py [--quick] [--only PART ...] [--runs DIR] [--seeds 3] [--languages en pt ru]
                                 [--lm-time 60m] [--caption-time 10m] [--strip-time 30m] [--formula-time 30m]
                                 [--parallel 1] [--maps DIR]

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
data. With --runs, corpora and models stay in DIR, and finished models are not trained again. With --parallel 2, two
models are trained at the same time, each on half of the cores.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from importlib import import_module
from math import log
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

import heedful
import kneser_ney
import media_faults
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
CORES = len(os.sched_getaffinity(0))  # with `taskset -c 0`, trainings use one core


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
    parallel: int
    maps: Path | None


# ----------------------------------------------------------------------------------------------------------- settings

NO_CLEANING = {"drop": ["empty"], "duplicates": "keep", "overlap": "keep"}  # the models learn from exactly these lines
TRAIN = {"label_smoothing": 0.0, "ema": 0.999, "clip_norm": 1.0}


# Without dropout: the language models see every sentence at most four times, too few to overfit.
def transformer_lm(width: int) -> dict[str, Any]:
    return {
        "width": width, "positions": "sinusoidal", "scale_embeddings": True,
        "encoder": {"kind": "nothing"},
        "decoder": {
            "kind": "transformer", "layers": 3, "heads": 4, "feedforward_size": 4 * width, "norm": "pre"
        },
    }  # fmt: skip


def lstm_lm(width: int) -> dict[str, Any]:
    return {
        "width": width, "scale_embeddings": True, "output_bias": True,
        "encoder": {"kind": "nothing"},
        "decoder": {"kind": "recurrent", "cell": "lstm", "width": 2 * width, "initial_state": "zero"},
    }  # fmt: skip


LANGUAGE_MODELS = {"transformer": transformer_lm, "lstm": lstm_lm}


def captioner(
    width: int = 256,
    *,
    pool: bool = False,
    dropout: float = 0.2,
    query_from: str = "previous",
    score: str = "additive",
) -> dict[str, Any]:
    """Show, Attend and Tell: a CNN, and an LSTM with additive attention; with `pool`, the CNN gives one vector.

    With the query from the current state, all steps are computed at once: on strips, training is seven times as fast.
    """
    return {
        "width": width, "scale_embeddings": True, "output_bias": True, "dropout": dropout,
        "encoder": {"kind": "patches", "stem": "convolution", "pool": pool},
        "decoder": {
            "kind": "recurrent", "cell": "lstm", "width": width, "query_from": query_from, "gated_context": True,
            "dropout": dropout, "attention": {"score": score},
        },
    }  # fmt: skip


def formula_reader(width: int) -> dict[str, Any]:
    """A Transformer. The aim is to overfit, so it has no dropout.

    An LSTM memorized the formulas, but never looked at the picture, from which it can tell the first tokens.
    """
    layers = {"heads": 4, "feedforward_size": 4 * width, "norm": "pre"}
    return {
        "width": width, "positions": "sinusoidal", "scale_embeddings": True,
        "encoder": {"kind": "patches", "stem": "convolution", "layers": 1, **layers},
        "decoder": {"kind": "transformer", "layers": 3, **layers},
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


def train(folder: Path, name: str, tree: Mapping[str, Any], threads: int = CORES) -> Path:
    """`heedful train`: the model directory. A finished model is kept, and an interrupted training continues."""
    path = write_settings(folder, name, tree)
    model = path.with_suffix("") / "model"
    if model.exists():
        return model
    begin = time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    log = path.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen([*HEEDFUL, "train", str(path)], stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    text = log.read_text(encoding="utf-8")
    if status:
        raise RuntimeError(f"{name}: {text[-2000:]}")
    steps = re.search(r"after ([\d,]+) steps", text)
    print(
        f"# {name}: {steps[1] if steps else '?'} steps, {time.perf_counter() - begin:.0f} s in all, {threads} threads, "
        f"{usage.ru_utime + usage.ru_stime:.0f} s of CPU time",
        flush=True,
    )
    return model


def write_settings(folder: Path, name: str, tree: Mapping[str, Any]) -> Path:
    """The settings file; the training writes into the directory of the same name."""
    run = folder / name.replace(" ", "-")
    settings = config.parse_settings({**tree, "train": {**tree["train"], "output_dir": str(run)}})
    path = run.with_suffix(".toml")
    path.write_text(config.to_toml(settings), encoding="utf-8")
    return path


def train_all(options: Options, trees: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """The model directories of several trainings on the same corpus, `options.parallel` at a time."""
    threads = max(1, CORES // options.parallel)
    name, tree = next(iter(trees.items()))
    # first, because only one process can prepare a corpus at a time
    path = write_settings(options.folder, name, tree)
    subprocess.run([*HEEDFUL, "prepare", str(path)], capture_output=True, check=True)

    def train_one(name: str) -> Path:
        return train(options.folder, name, trees[name], threads)

    with ThreadPoolExecutor(options.parallel) as pool:
        return list(pool.map(train_one, trees))


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
    # 2,000 pieces: n-grams have 1.201 bits per character with them and 1.199 with 8,000, and a softmax costs a quarter
    num_test, max_sentences, vocab_size = (500, 12_000, 1_000) if options.quick else (20_000, None, 2_000)
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
    kinds = list(LANGUAGE_MODELS)[: 1 if options.quick else None]
    trees = {
        f"lm-{kind}": settings_tree(
            folder,
            ("train.txt", "valid.txt"),
            tokenizer={"files": [str(path)]},
            train={"batch_tokens": 1024, "learning_rate": 2e-3} | quick_steps(options, options.lm_time, 40),
            input={"kind": "none"},
            model=LANGUAGE_MODELS[kind](64 if options.quick else 256),
        )
        for kind in kinds
    }
    for kind, directory in zip(kinds, train_all(options, trees), strict=True):
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
        trees = {
            f"captions-{language}-{kind}-{seed}": caption_tree(options, folder, language, pool, seed)
            for seed in range(1, options.seeds + 1)
            for kind, pool in CAPTIONERS.items()
        }
        models = iter(train_all(options, trees))
        for seed in range(1, options.seeds + 1):
            for kind in CAPTIONERS:
                directory = next(models)
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


def caption_tree(options: Options, folder: Path, language: str, pool: bool, seed: int) -> dict[str, Any]:
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
        target=language,
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
    test, scores, trees = splits["test"], {}, {}
    sizes = ", ".join(f"{name} {len(strips):,}" for name, strips in splits.items())
    print(f"\n# strips of {len(source_data.strip_emoji())} emoji: {sizes}")
    for kind, pool in CAPTIONERS.items():
        trees[f"strips-{kind}"] = settings_tree(
            folder,
            ("train.tsv", "valid.tsv"),
            tokenizer={"vocab_size": 1_000},
            # no coverage penalty: it would ask for attention on the empty cells
            # without word dropout, the later words of a caption follow from the earlier ones, and attention goes astray
            train={"batch_tokens": 4096, "learning_rate": 2e-3, "word_dropout": 0.3}
            | quick_steps(options, options.strip_time, 20),
            input={"kind": "image", "height": 32, "width": 160, "patch": 8},
            model=captioner(
                64 if options.quick else 128, pool=pool, dropout=0.1, query_from="current", score="scaled_dot"
            ),
        )  # fmt: skip
    models = dict(zip(CAPTIONERS, train_all(options, trees), strict=True))
    for kind in CAPTIONERS:
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
    slots = np.array(images.boxes((), 1))
    centers = (slots[:, 0] + slots[:, 2]) / 2
    shares = []
    for strip in strips:
        for each in word_maps(model, folder, strip):
            if each.emoji is not None:
                left, _, right, _ = strip.boxes[each.emoji]
                shares.append(float(each.weights[(left < centers) & (centers < right)].sum()))
    return shares


def draw_maps(directory: Path, folder: Path, strips: Sequence[source_data.Strip], out: Path) -> None:
    """One PNG per strip: for every word, the picture, in yellow where the word looks."""
    from PIL import Image, ImageChops, ImageDraw

    model: Any = heedful.load(directory)
    settings = model.bundle.description.input
    patches = (settings.height // settings.patch, settings.width // settings.patch)
    size = (settings.width * 2, settings.height * 2)
    across, down = size[0] + 20, size[1] + 24  # of a word with its picture, in a page of three columns
    out.mkdir(parents=True, exist_ok=True)
    for number, strip in enumerate(strips, 1):
        maps = word_maps(model, folder, strip)
        picture = Image.open(folder / strip.path).convert("RGB").resize(size, Image.Resampling.NEAREST)
        faded = Image.blend(picture, Image.new("RGB", size, "white"), 0.8)
        marked = ImageChops.multiply(picture, Image.new("RGB", size, "gold"))
        page = Image.new("RGB", (3 * across, -(-len(maps) // 3) * down), "white")
        for at, each in enumerate(maps):
            left, top = at % 3 * across, at // 3 * down
            light = np.uint8(255 * each.weights.reshape(patches) / each.weights.max())
            mask = Image.fromarray(light).resize(size, Image.Resampling.NEAREST)
            page.paste(Image.composite(marked, faded, mask), (left, top + 18))
            ImageDraw.Draw(page).text((left + 4, top + 2), each.word, fill="black", font_size=13)
        page.save(out / f"strip-{number:02}.png")


# ------------------------------------------------------------------------------------------------------------ formulas


def measure_formulas(options: Options) -> list[Claim]:
    folder = options.folder / "formulas"
    folder.mkdir(exist_ok=True)
    pairs = source_data.write_formulas(folder, 20 if options.quick else None)["train"]
    source_data.write_lines(folder / "known.tsv", ["\t".join(pair) for pair in pairs[:100]])
    tree = settings_tree(
        folder,
        ("train.tsv", "known.tsv"),
        tokenizer={"vocab_size": 400 if options.quick else 1_000},
        train={"batch_tokens": 1024, "learning_rate": 1e-3, "validate_pairs": 2 if options.quick else 100}
        | quick_steps(options, options.formula_time, 20),
        # patches of 16: with 192 slots of 8 x 8 pixels, training takes four times as long
        input={"kind": "image", "height": 48, "width": 256, "patch": 16},
        model=formula_reader(64 if options.quick else 128),
    )
    threads = max(1, CORES // options.parallel)
    model = heedful.load(train(options.folder, "formulas", tree, threads=threads))
    texts = [formula.text for formula in model([str(folder / path) for path, _ in pairs], beam=1)]
    print(f"\n{len(pairs)} formulas of the training part: chrF, exact match")
    print_captions("attention", [texts], [formula for _, formula in pairs])
    exact = interval("exact", texts, [formula for _, formula in pairs]).value
    return [("formulas: exact matches in the training part, in percent", exact, 0.0 if options.quick else 95.0)]


# -------------------------------------------------------------------------------------------------------- same results


def few_pictures(options: Options, name: str, corpora: int = 1) -> tuple[Path, dict[str, Any]]:
    """A folder of emoji with several tables, and settings for it."""
    folder = options.folder / name
    splits = source_data.write_emoji(folder, "en", 200 if options.quick else None)
    lines = [f"pictures/{emoji.code}.png\t{emoji.captions['en']}" for emoji in splits["train"]]
    tree = settings_tree(
        folder, ("train.tsv", "valid.tsv"), tokenizer={"vocab_size": 500}, train={},
        input={"kind": "image", "patch": 8, "shift": 2, "crop": 0.1, "color": 0.1},
        model=captioner(32),
    )  # fmt: skip
    tree["data"]["train"] = media_faults.split_table(folder, lines, corpora)
    return folder, tree


def measure_resume(options: Options) -> list[Claim]:
    folder, tree = few_pictures(options, "resume")
    return media_faults.measure_resume("pictures", folder, tree, batch_tokens=400, quick=options.quick)


def measure_prepare(options: Options) -> list[Claim]:
    return media_faults.measure_prepare(*few_pictures(options, "prepare", media_faults.CORPORA))


def measure_hostile(options: Options) -> list[Claim]:
    pictures = import_module("support.hostile_pictures")
    folder = options.folder / "hostile"
    return media_faults.measure_hostile(
        folder, pictures.write_hostile_pictures, pictures.read_in_process, quick=options.quick
    )


PARTS: dict[str, Callable[[Options], list[Claim]]] = {
    "lm": measure_language_models,
    "captions": measure_captions,
    "strips": measure_strips,
    "formulas": measure_formulas,
    "resume": measure_resume,
    "prepare": measure_prepare,
    "hostile": measure_hostile,
}
QUICK_PARTS = ("lm", "strips", "prepare", "hostile")  # in less than a minute


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="some parts, few steps on few lines, looser bounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep corpora and models here")
    parser.add_argument("--seeds", type=int, default=3, help="of the models that describe emoji")
    parser.add_argument("--languages", nargs="+", choices=("en", "pt", "ru", "de", "fr", "es"),
                        default=["en", "pt", "ru"], metavar="LANGUAGE", help="of the captions of emoji")  # fmt: skip
    parser.add_argument("--lm-time", default="60m", help="of each language model")
    parser.add_argument("--caption-time", default="10m", help="of each seed of each model")
    parser.add_argument("--strip-time", default="30m", help="of each model")
    parser.add_argument("--formula-time", default="30m")
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="trainings at the same time")
    parser.add_argument("--maps", type=Path, metavar="DIR", help="draw the attention on ten strips")
    arguments = parser.parse_args()
    header(__file__)
    if arguments.quick:
        arguments.seeds, arguments.languages = 1, ["pt"]
    with tempfile.TemporaryDirectory(prefix="sources-") as name:
        folder = (arguments.runs or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(
            folder, arguments.quick, arguments.seeds, arguments.languages, arguments.lm_time, arguments.caption_time,
            arguments.strip_time, arguments.formula_time, arguments.parallel, arguments.maps,
        )  # fmt: skip
        parts = arguments.only or (QUICK_PARTS if options.quick else PARTS)
        return verdict([claim for part in parts for claim in PARTS[part](options)])


if __name__ == "__main__":
    sys.exit(main())
