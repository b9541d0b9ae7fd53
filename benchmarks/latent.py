"""CTC and sampled attention: are their losses, gradients and searches those of all alignments, and what do they learn?

    python benchmarks/latent.py [--quick] [--only PART ...] [--runs DIR] [--languages ady arm ...]
                                [--g2p-time 4m] [--names-time 10m] [--digit-time 20m]

    math   the sum over all paths, PyTorch's loss and gradients, the worked value of the lecture, prefix beam search
           against every label sequence, 5,000 slots without underflow, and a cost that is linear in the number of
           slots; the mean of the REINFORCE draws against the exact gradient by enumeration, with and without a baseline
    g2p    letters to phonemes in the 15 languages of SIGMORPHON 2020, task 1: word error rate of CTC, soft and sampled
           attention over the same encoder
    names  Arabic names to English: exact matches of the same three
    digits strings of 3 to 7 spoken digits (benchmarks/speech.py): word error rate of CTC, soft attention, attention
           that also sees the weights of the step before, and attention trained jointly with CTC

The lecture claims that CTC is hard to beat where order is monotone, and that hard attention is a nightmare to train.
With --runs, models stay in DIR, and finished models are not trained again. Checkpoints are chosen on validation data;
nothing is chosen on the test data. Multi30k with sampled attention is a row of another script:

    python benchmarks/multi30k.py --row hard --runs DIR
"""

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn

import heedful
import speech
from heedful import config
from heedful.text.normalize import normalize_all
from report import header, read_lines, verdict

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "model", "nn"))

from test_ctc import paths_of, random_case, row
from test_latent import enumerate_slots, make_batch, make_model, trained

from heedful.model.latent import find_sampled, reinforce_loss
from heedful.nn.attention import Sampled
from heedful.nn.contract import Memory
from heedful.nn.ctc import count_required_slots, ctc_loss, explicit_ctc_loss, forward_backward
from heedful.nn.decoders import CTCDecoder
from heedful.search import DecodingLimits, PrefixBeam

Claim = tuple[str, float, float]
MAX_STANDARD_ERRORS = 4.0
MAX_SLOPE = 1.3  # of the logarithm of the time over that of the slots


def enumeration_error() -> float:
    """The largest error of p(y | x), for up to 6 slots and 3 labels, in double precision."""
    torch.manual_seed(0)
    errors = []
    for slots, labels in itertools.product(range(1, 7), range(1, 4)):
        log_probs = torch.randn(1, slots, labels + 1, dtype=torch.double).log_softmax(-1)
        mask = torch.ones(1, slots, dtype=torch.bool)
        for length in range(min(slots, 3) + 1):
            for sequence in itertools.product(range(1, labels + 1), repeat=length):
                paths = paths_of(slots, sequence, labels + 1).long()  # empty where the labels do not fit
                exact = log_probs[0, torch.arange(slots), paths].sum(1).exp().sum()
                ours = forward_backward(log_probs, mask, *row(*sequence)).log_likelihood.exp()
                errors.append(abs(float(ours) - float(exact)))
    return max(errors)


def loss_error(cases: int) -> float:
    """The largest relative error of loss and gradient against F.ctc_loss, in single precision."""
    draw = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(cases):
        logits, mask, labels, label_mask = random_case(draw)
        fits = count_required_slots(labels, label_mask) <= mask.sum(1)
        results = []
        for loss in (ctc_loss, explicit_ctc_loss):
            losses = loss(logits.log_softmax(-1), mask, labels, label_mask)[fits]
            results.append((losses.detach(), torch.autograd.grad(losses.sum(), logits)[0]))
        for theirs, ours in zip(*results, strict=True):
            if theirs.numel():
                worst = max(worst, float(((theirs - ours).abs() / theirs.abs().clamp(min=1.0)).max()))
    return worst


def search_misses(cases: int) -> int:
    """How often a beam as large as the space does not find the most probable labels."""
    misses = 0
    for case in range(cases):
        torch.manual_seed(case)
        decoder = CTCDecoder(nn.Linear(3, 5), 3, bos=1, eos=2).double().requires_grad_(False)
        for weight in decoder.parameters():
            nn.init.normal_(weight, std=1.5)
        memory = Memory(torch.randn(1, 4, 3).double(), torch.ones(1, 4, dtype=torch.bool))
        log_probs, mask = decoder.slot_labels(memory)
        best = max(
            float(forward_backward(log_probs, mask, *row(*labels)).log_likelihood)
            for length in range(5)
            for labels in itertools.product((3, 4), repeat=length)
        )
        (result,) = PrefixBeam(100)(decoder, memory, DecodingLimits(1, 2, 20))
        misses += abs(result.best.log_probability - best) > 1e-9
    return misses


def long_input() -> tuple[bool, float]:
    """Whether loss and gradient of 5,000 slots are finite and equal PyTorch's, and the slope of time over slots."""
    torch.manual_seed(0)
    seconds = []
    sizes = (625, 1250, 2500, 5000)
    for slots in sizes:
        logits = torch.randn(1, slots, 6, requires_grad=True)
        mask, labels = torch.ones(1, slots, dtype=torch.bool), torch.randint(1, 6, (1, 40))
        arguments = (mask, labels, torch.ones_like(labels, dtype=torch.bool))
        started = time.process_time()
        loss = explicit_ctc_loss(logits.log_softmax(-1), *arguments)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        seconds.append(time.process_time() - started)
    expected = ctc_loss(logits.log_softmax(-1), *arguments)
    agrees = (
        torch.allclose(loss, expected, rtol=1e-5) and bool(gradient.isfinite().all()) and float(loss.detach()) > 5000
    )
    x, y = torch.tensor(sizes).double().log(), torch.tensor(seconds).double().log()
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return agrees, slope


def draw_gradients(baseline_decay: float, draws: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact gradient, and one estimate per batch of `rows` draws."""
    model = make_model("previous", Sampled(soft_share=0.0, entropy_weight=0.0, baseline_decay=baseline_decay))
    log_p, log_likelihood, _ = enumerate_slots(model)
    exact = torch.autograd.grad(-(log_p.exp() * log_likelihood).sum(), trained(model))
    sampled = find_sampled(model.decoder)
    assert sampled is not None
    estimates = []
    batch = make_batch(rows)
    for _ in range(draws // rows):
        loss = reinforce_loss(model.decoder, sampled, model.encoder(*batch.source), batch, 0.0)
        gradients = torch.autograd.grad(loss.smoothed / rows, trained(model))
        estimates.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return torch.cat([gradient.flatten() for gradient in exact]), torch.stack(estimates)


# ---------------------------------------------------------------------------------------------------------- the parts


@dataclass(frozen=True)
class Options:
    """What to measure, where, and for how long to train."""

    folder: Path
    quick: bool
    languages: Sequence[str]
    g2p_time: str
    names_time: str
    digit_time: str

    @property
    def kinds(self) -> Sequence[str]:
        """The decoders to compare: the first two are enough for the claim about CTC."""
        return list(DECODERS)[: 2 if self.quick else None]


def measure_math(options: Options) -> list[Claim]:
    """Equality with enumeration and with PyTorch."""
    cases, searches, draws, rows = (100, 30, 8_000, 100) if options.quick else (1000, 500, 200_000, 500)

    log_probs = torch.tensor([[[0.6, 0.4], [0.5, 0.5], [0.7, 0.3]]], dtype=torch.double).log()
    worked = float(explicit_ctc_loss(log_probs, torch.ones(1, 3, dtype=torch.bool), *row(1)))
    error, relative, misses = enumeration_error(), loss_error(cases), search_misses(searches)
    agrees, slope = long_input()
    print(f"worked value                       {worked:.6f}")
    print(f"CTC against all paths              {error:.1e} (largest error of p)")
    print(f"CTC against F.ctc_loss             {relative:.1e} ({cases} cases, loss and gradient)")
    print(f"prefix beam against all labels     {misses} misses in {searches} cases")
    print(f"5,000 slots                        {'finite and equal' if agrees else 'not equal'}")
    print(f"time over slots                    slope {slope:.2f}")

    variances = {}
    for name, decay in (("moving baseline", 0.9), ("no baseline", 1.0)):  # with decay 1 it stays 0
        exact, estimates = draw_gradients(decay, draws, rows)
        standard_errors = estimates.std(0) / len(estimates) ** 0.5
        deviations = (estimates.mean(0) - exact).abs() / (standard_errors + 1e-12)
        variances[name] = float(estimates.var(0).sum()) * rows
        if decay == 0.9:
            largest, weights = float(deviations.max()), len(exact)
    print(f"REINFORCE against enumeration      {largest:.2f} standard errors at most, {weights} weights, {draws} draws")
    for name, variance in variances.items():
        print(f"variance of a draw, {name:15}{variance:8.2f}")

    return [
        ("digits of the worked value 0.314711", -math.log10(abs(worked + math.log(0.73)) + 1e-16), 6.0),
        ("digits of CTC against the enumeration of all paths", -math.log10(error + 1e-16), 10.0),
        ("digits of CTC and its gradient against F.ctc_loss", -math.log10(relative + 1e-16), 5.0),
        ("share of searches that find the most probable labels", 1.0 - misses / searches, 1.0),
        ("loss and gradient of 5,000 slots are finite and equal PyTorch's", float(agrees), 1.0),
        ("1.3 less the slope of time over slots", MAX_SLOPE - slope, 0.0),
        ("4 less the largest standard error of REINFORCE", MAX_STANDARD_ERRORS - largest, 0.0),
        (
            "variance without the baseline over that with it",
            variances["no baseline"] / variances["moving baseline"],
            2,
        ),
    ]


# ------------------------------------------------------------------------------------------------------------ the tasks

G2P = "g2p/sigmorphon2020"
LANGUAGES = ("ady", "arm", "bul", "dut", "fre", "geo", "gre", "hin", "hun", "ice", "jpn", "kor", "lit", "rum", "vie")
# The macro-averaged word error rate of 15 languages in percent, by an ensemble of multilingual Transformers with
# self-training: Vesik, Abdul-Mageed and Silfverberg 2020, aclanthology.org/2020.sigmorphon-1.16. According to the
# overview (Gorman et al. 2020, aclanthology.org/2020.sigmorphon-1.2), the best system has 18 % fewer errors than the
# strongest baseline; its scores by language are not in the data.
PUBLISHED_G2P = 14.99
PUBLISHED_NAMES = 22.5  # percent exact: a small Transformer, beam 4 (the README of the corpus)
SOFT = {"kind": "recurrent", "cell": "lstm", "query_from": "current", "attention": {"score": "additive"}}
DECODERS: dict[str, dict[str, Any]] = {
    "CTC": {"kind": "ctc"},
    "soft": SOFT,
    "sampled": SOFT | {"attention": {"score": "additive", "normalizer": "sampled"}},
}
Pairs = Sequence[tuple[str, str]]


def measure_g2p(options: Options) -> list[Claim]:
    """Word error rates by language, and their means."""
    errors: dict[str, list[float]] = {kind: [] for kind in options.kinds}
    print(f"\n{'WER':10}{''.join(f'{kind:>10}' for kind in errors)}")
    for language in options.languages:
        splits = {split: read_words(f"{G2P}/{language}_{split}.tsv.gz") for split in ("train", "dev", "test")}
        models = train_all(options, f"g2p-{language}", splits, options.g2p_time)
        for kind, model in models.items():
            errors[kind].append(100 - exact_matches(model, splits["test"]))
        print(f"{language:10}{''.join(f'{rates[-1]:10.2f}' for rates in errors.values())}", flush=True)
    means = {kind: mean(rates) for kind, rates in errors.items()}
    print(f"{'mean':10}{''.join(f'{rate:10.2f}' for rate in means.values())}")
    if set(options.languages) == set(LANGUAGES):
        print(f"published  {PUBLISHED_G2P:8.2f} (an ensemble over all languages, Vesik et al. 2020)")
    order = [("letters to phonemes: WER of soft attention, minus that of CTC", means["soft"] - means["CTC"], 0.0)]
    if "sampled" in means:
        worse = means["sampled"] - means["soft"]
        order.append(("letters to phonemes: WER of sampled attention, minus that of soft", worse, 0.0))
    return order


def measure_names(options: Options) -> list[Claim]:
    """Exact matches of transliterated names."""
    names = {"train": "train", "dev": "eval", "test": "test"}
    splits = {split: read_names(f"transliteration/ar2en-{name}.txt.gz") for split, name in names.items()}
    models = train_all(options, "names", splits, options.names_time)
    exact = {kind: exact_matches(model, splits["test"]) for kind, model in models.items()}
    for kind, share in exact.items():
        print(f"Arabic names to English, {kind:8}{share:6.2f} % exact (published: {PUBLISHED_NAMES} %)", flush=True)
    return [("Arabic names to English: percent exact of CTC", exact["CTC"], PUBLISHED_NAMES)]


def spoken_ctc(width: int) -> dict[str, Any]:
    return {**speech.lstm(width), "tie_embeddings": "none", "decoder": {"kind": "ctc"}}


def spoken_location(width: int) -> dict[str, Any]:
    tree = speech.lstm(width)
    return {**tree, "decoder": {**tree["decoder"], "attention": {"score": "content_location"}}}


def spoken_joint(width: int) -> dict[str, Any]:
    return {**speech.lstm(width), "ctc_head": {"weight": 0.3}}


SPOKEN = {  # over the same encoder, with the label smoothing
    "CTC": (spoken_ctc, 0.0),
    "lstm": (speech.lstm, 0.1),  # as benchmarks/speech.py names it
    "content + location": (spoken_location, 0.1),
    "joint": (spoken_joint, 0.1),
}


def measure_digits(options: Options) -> list[Claim]:
    """Word error rates on strings of spoken digits."""
    folder = options.folder / "strings"
    of_speech = speech.Options(options.folder, options.quick, 1, options.digit_time, options.digit_time)
    test = speech.write_strings(
        folder, speech.string_counts(of_speech), dict.fromkeys(speech.SPLITS, speech.speakers())
    )["test"]
    rates = {}
    for name, (make_settings, label_smoothing) in SPOKEN.items():
        run = f"strings-{name.replace(' + ', '-')}"
        model = speech.train_model(
            of_speech, run, make_settings, folder, options.digit_time, label_smoothing=label_smoothing
        )
        texts = speech.transcribe(model, [str(utterance.path) for utterance in test])
        rates[name] = speech.word_error_rate(texts, test)
        shown = "soft" if name == "lstm" else name
        print(f"spoken digits, {shown:20}WER {rates[name]:6.2f} %   (loss at each validation: "
              f"{losses(options.folder / run)})", flush=True)  # fmt: skip
    gain = rates["lstm"] - rates["CTC"]
    return [("spoken digits: WER of soft attention, minus that of CTC", gain, -1e9 if options.quick else 0.0)]


def losses(run: Path) -> str:
    """The loss at the validations of a run."""
    return " ".join(f"{record['loss']:.2f}" for record in validations(run))


def read_words(name: str) -> Pairs:
    """Letters and phonemes, separated by spaces."""
    words = (line.split("\t") for line in read_lines(name))
    return [(" ".join(word), phonemes) for word, phonemes in words]


def read_names(name: str) -> Pairs:
    """Letters of both sides, separated by spaces; a space of a name is _."""
    pairs = (line.split("\t")[:2] for line in read_lines(name))
    return [(" ".join(arabic.replace(" ", "_")), " ".join(latin.replace(" ", "_"))) for arabic, latin in pairs]


def train_all(options: Options, task: str, splits: dict[str, Pairs], time_limit: str) -> dict[str, Any]:
    """A model per decoder, over the same kind of encoder."""
    folder = options.folder / task
    folder.mkdir(exist_ok=True)
    for split, pairs in splits.items():
        for side, column in (("in", 0), ("out", 1)):
            text = "".join(f"{pair[column]}\n" for pair in pairs)
            (folder / f"{split}.{side}").write_text(text, encoding="utf-8")
    models = {}
    for kind in options.kinds:
        run = folder / kind
        if not (run / "model").is_dir():
            heedful.train(config.parse_settings(settings_tree(options, folder, kind, time_limit)), force=True)
        print(f"# {task}, {kind}: chrF at each validation {curve(run)}", flush=True)
        models[kind] = heedful.load(run / "model")
    return models


def settings_tree(options: Options, folder: Path, kind: str, time_limit: str) -> dict[str, Any]:
    """The recipe `ctc`, with another decoder."""
    width, is_ctc = (64 if options.quick else 192), kind == "CTC"
    dropout = {"dropout": 0.1 if options.quick else 0.3}
    length = {"steps": 80, "warmup_steps": 20, "learning_rate": 1e-2} if options.quick else {"time": time_limit}
    decoder = DECODERS[kind] if is_ctc else {**DECODERS[kind], "width": 2 * width, **dropout}
    return {
        "source": "in", "target": "out",
        "data": {
            "prepared_dir": str(folder / "prepared"),
            "train": [{"files": str(folder / "train")}], "validation": [{"files": str(folder / "dev")}],
        },
        "clean": {"drop": ["empty"], "duplicates": "keep", "overlap": "keep"},
        "tokenizer": {"kind": "words", "shared": False},
        "model": {
            "width": width, "tie_embeddings": "none" if is_ctc else "target", "output_bias": True, **dropout,
            "encoder": {
                "kind": "recurrent", "cell": "lstm", "width": 2 * width, "layers": 1 if options.quick else 2, **dropout
            },
            "decoder": decoder,
        },
        "train": {
            "output_dir": str(folder / kind), "batch_tokens": 2048, "learning_rate": 2e-3, "warmup_steps": 200,
            "label_smoothing": 0.0 if is_ctc else 0.1, "ema": False if options.quick else 0.999, **length,
        },
    }  # fmt: skip


def curve(run: Path) -> str:
    """chrF at the validations of a run."""
    return " ".join(f"{record['chrf']:.0f}" for record in validations(run))


def validations(run: Path) -> list[dict[str, Any]]:
    """The records of the validations of a run."""
    records = (json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [record for record in records if record["event"] == "validated"]


def exact_matches(model: Any, pairs: Pairs) -> float:
    """Percent of the sources whose translation is the reference."""
    outputs = [translation.text for translation in model([source for source, _ in pairs], beam=5)]
    references, _ = normalize_all(target for _, target in pairs)
    return 100 * mean(float(output == reference) for output, reference in zip(outputs, references, strict=True))


PARTS = {"math": measure_math, "g2p": measure_g2p, "names": measure_names, "digits": measure_digits}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer draws; one language, two small models")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--runs", type=Path, help="where corpora and models stay; by default a temporary directory")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, help="of g2p; by default, all 15")
    parser.add_argument("--g2p-time", default="4m", help="for each model of letters to phonemes")
    parser.add_argument("--names-time", default="10m", help="for each model of names")
    parser.add_argument("--digit-time", default="20m", help="for each model of spoken digits")
    given = parser.parse_args()
    torch.set_num_threads(1)
    header(__file__)
    languages = given.languages or (["geo"] if given.quick else LANGUAGES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.runs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(folder.resolve(), given.quick, languages, given.g2p_time, given.names_time,
                          given.digit_time)  # fmt: skip
        parts = given.only or (("math", "g2p") if given.quick else PARTS)
        claims = [claim for part in parts for claim in PARTS[part](options)]
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
