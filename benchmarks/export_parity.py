"""Do exports translate like the model, how fast are they, and what do they cost?

Trained models are exported to every supported format, each with its proof. Then the model and the export translate
Multi30k's test2016 with the model's beam and length penalty and the stopping rule of the export's engine.

Claims: float32 exports produce the same tokens for at least 99.5 % of the sentences, and every other answer is a tie
(its score by our model differs by less than 0.001); int8 is within 0.3 BLEU; log p of tokens is within 1e-4 in float32;
20 of 20 sabotaged exports are detected; imported models reproduce all 1,590 names and all 1,000 words with known
answers, and a Marian round trip is bit-identical.

Reported without a claim: speed against ours, text to text, interleaved; size; time from a new process to the first
answer; packages of a runtime installation.

    pip install 'heedful[export]' 'heedful[hugging-face]'
    python benchmarks/export_parity.py [--models tiny=RUN post=RUN lstm=RUN gru=RUN] [--quick] [--rounds 3]

Without --models: the bundled sample models, on their own test sets. --quick: two small random models, 60 lines of
nonsense, and 100 names and words.
"""

import argparse
import gzip
import importlib.metadata
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import log10
from pathlib import Path
from unittest.mock import patch

import torch

from heedful import config
from heedful.bundle import open_bundle, read_weights
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.errors import ConfigError, HeedfulError
from heedful.exporters.api import FORMATS, Probes, export, validation_probes
from heedful.exporters.parity import ProofError, is_tie, prove
from heedful.importers.api import import_model
from heedful.samples import PAIRS as SAMPLES
from heedful.samples import model as sample_model
from heedful.text.normalize import normalize
from heedful.translation.loading import load
from heedful.translation.translator import TranslationOptions, Translator
from report import bf16_problem, header, skip, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
for _part in ("exporters", "importers"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / _part))

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
WANTED = [("ctranslate2", "float32"), ("ctranslate2", "int8"), ("ctranslate2", "bfloat16"),
          ("hugging_face", "float32"), ("onnx", "float32")]  # fmt: skip
RUN_TIME = {
    "PyTorch, to train and to translate": ["heedful[train]"],
    "CTranslate2": ["heedful", "ctranslate2"],
    "ONNX Runtime": ["heedful[onnx]"],
    "Hugging Face": ["transformers", "torch", "sentencepiece"],
}
FIRST = "import sys, heedful; print(heedful.load(sys.argv[1])(sys.argv[2]).text)"


@dataclass(frozen=True)
class ExportResult:
    """Results of one export."""

    name: str
    same: int
    ties: int
    cut: int  # others that never end, and that each engine cut off at the limit in its own way
    lines: int
    largest: float
    ours: float  # BLEU
    theirs: float
    speed: float  # theirs / ours
    megabytes: float
    first: float  # seconds


Corpus = tuple[list[str], list[str]]  # the lines of both sides


def make_nonsense() -> Corpus:
    """Lines for the random models of --quick; both sides are the same."""
    from test_bundle import TEXTS

    lines = [" ".join(text.split()[at:] + text.split()[:at]) for at in range(5) for text in TEXTS[:4]] * 3
    return lines, lines


def load_corpus(model: Path, split: str) -> Corpus:
    """`split` ("valid" or "test") of a bundled sample for its model, of Multi30k for any other."""
    pair = model.parent.name
    if pair in SAMPLES and model == sample_model(pair).resolve():
        files = [model.parent / f"{split}.{code}.gz" for code in pair.split("-")]
    else:
        stem = {"valid": "val", "test": "test_2016_flickr"}[split]
        files = [DATA / "multi30k" / f"{stem}.{code}.gz" for code in ("en", "de")]
    source, target = (gzip.decompress(file.read_bytes()).decode().splitlines() for file in files)
    return source, target


def make_small_models(folder: Path) -> dict[str, Path]:
    """Random models, a Transformer and a recurrent one, for --quick."""
    from test_export import bundle_of, model

    from test_bundle import made

    tree = {
        "width": 32,
        "encoder": {"kind": "recurrent", "width": 32, "cell": "lstm"},
        "decoder": {"kind": "recurrent", "width": 32, "cell": "lstm", "attention": {"score": "additive"}},
    }
    recurrent = made(folder / "lstm", "bpe", config.ModelSettings.model_validate(tree), statistics={})
    return {"pre": bundle_of(folder / "pre", model("pre")).folder, "lstm": recurrent.folder}


def measure_export(
    name: str, model: Path, to: str, quantization: str, out: Path, corpus: Corpus, rounds: int
) -> ExportResult:
    """One export, held against its model."""
    texts, gold = corpus
    probes: Probes | None = None  # what its run validated on, where that is still there
    try:
        validation_probes(open_bundle(model))
    except ConfigError:
        probes = Probes(texts) if texts == gold else Probes(*load_corpus(model, "valid"))  # equal: nonsense
    export(model, out, to=to, quantization=quantization, probes=probes)
    ours, theirs = load(model), load(out)
    rule = FORMATS[to].stopping
    search = replace(ours.search_options(TranslationOptions()), stopping=rule, renormalize=rule == "ctranslate2")
    proof = prove(ours, theirs, texts, gold, stopping=search.stopping, is_quantized=quantization != "float32")
    cut = count_endless(ours, theirs, texts, search)
    bleu = proof.bleu or (0.0, 0.0)
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for who, translator in (("ours", ours), ("theirs", theirs)):
            begin = time.perf_counter()
            translator(texts)
            seconds[who].append(time.perf_counter() - begin)
    ratio = statistics.median(a / b for a, b in zip(seconds["ours"], seconds["theirs"], strict=True))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    starts = []
    for _ in range(min(rounds, 3)):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", FIRST, out, texts[0]], check=True, capture_output=True)
        starts.append(time.perf_counter() - begin)
    return ExportResult(
        f"{name}, {to}, {quantization}", proof.same, proof.ties, cut, proof.sentences, proof.largest, *bleu, ratio,
        size / 1e6, statistics.median(starts),
    )  # fmt: skip


def count_endless(ours: Translator, theirs: Translator, texts: Sequence[str], search: SearchOptions) -> int:
    """Print the first different answers with our model's scores; return how many never end."""
    lines = enumerate(ours.make_segments([normalize(text)[0] for text in texts], TranslationOptions(), 0), 1)
    numbers, questions = zip(*((number, segment.source) for number, line in lines for segment in line), strict=True)
    pairs = zip(
        numbers,
        questions,
        ours.translate_sources(questions, search),
        theirs.translate_sources(questions, search),
        strict=True,
    )
    shown = cut = 0
    for number, question, (mine, *_), (other, *_) in pairs:
        first, second = mine.hypothesis.tokens, other.hypothesis.tokens
        if first == second:
            continue
        endless = not (mine.hypothesis.finished or other.hypothesis.finished)
        cut += endless and not is_tie(ours, question, first, second, search)
        shown += 1
        if shown > 3:
            continue
        scores = [answer.hypothesis.score for answer in ours.engine.score_targets([question] * 2, [first, second])]
        kind = f"log p {scores[0]:.4f} and {scores[1]:.4f}"
        if endless or is_tie(ours, question, first, second, search):
            kind = "neither ends" if endless else "a tie"
        first_text, second_text = ours.target.decode([first, second])
        print(f"    line {number}\n      {first_text}\n      {second_text}  ({kind})")
    return cut


def count_caught_sabotages() -> tuple[int, int]:
    """The number of planted faults that the proof detects."""
    from test_export import PROBES, SABOTAGES, bundle_of, model

    caught = 0
    with tempfile.TemporaryDirectory() as made:
        bundle = bundle_of(Path(made) / "model", model(tied="none", bias=True))
        for number, harm in enumerate(SABOTAGES.values()):
            weights = dict(read_weights(bundle))
            harm(weights)
            with patch("heedful.exporters.ctranslate2.read_float_weights", return_value=weights), suppress(ProofError):
                export(bundle.folder, Path(made) / str(number), probes=PROBES)
                caught -= 1
            caught += 1
    return caught, len(SABOTAGES)


def count_known_answers(limit: int | None) -> dict[str, tuple[int, int]]:
    """What models of others are known to say, of the first `limit` inputs."""
    from test_imports import AREN, G2P, table

    counts: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as made:
        names = load(import_model(AREN, Path(made) / "aren", languages=("ar", "en")).folder)
        rows = table(AREN / "expected-ar2en-test.tsv")[:limit]
        ids = names.source.encode([row["source"] for row in rows])
        questions = [EncodedSource(tuple(tokens), 2 * len(tokens) + 10) for tokens in ids]
        answers = names.translate_sources(questions, SearchOptions(beam=4, stopping="ctranslate2"))
        texts = names.target.decode([candidates[0].hypothesis.tokens for candidates in answers])
        counts["names"] = (sum(a == b["beam4"] for a, b in zip(texts, rows, strict=True)), len(rows))
        words = load(import_model(G2P, Path(made) / "g2p").folder)
        rows = table(G2P / "expected-1000.tsv")[:limit]
        texts = [translation.text for translation in words([row["word"] for row in rows])]
        counts["words"] = (sum(a == b["greedy"] for a, b in zip(texts, rows, strict=True)), len(rows))
    return counts


def count_packages(wanted: Sequence[str]) -> int:
    """The number of packages of an installation, from the dependency metadata of installed packages."""
    from packaging.requirements import Requirement

    seen: set[str] = set()

    def visit(text: str) -> None:
        need = Requirement(text)
        if need.marker is not None and not any(
            need.marker.evaluate({"extra": extra}) for extra in (need.extras or {""}) | {""}
        ):
            return
        for extra in need.extras or {""}:
            key = f"{need.name.lower()}[{extra}]"
            if key in seen:
                continue
            seen.add(key)
            try:
                inner = importlib.metadata.requires(need.name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            for requirement in inner:
                again = Requirement(requirement)
                if again.marker is None or again.marker.evaluate({"extra": extra}):
                    visit(f"{again.name}[{','.join(again.extras)}]" if again.extras else again.name)

    for requirement in wanted:
        visit(requirement)
    return len({key.split("[")[0].replace("_", "-") for key in seen})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[], metavar="NAME=RUN")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    header(__file__)
    torch.set_num_threads(2)
    folder = Path(tempfile.mkdtemp())
    try:
        if arguments.quick:
            arguments.rounds = 1
            models = make_small_models(folder / "models")
        else:
            models = {name: Path(run) for name, run in (model.split("=", 1) for model in arguments.models)}
            models = models or {pair: sample_model(pair) for pair in SAMPLES}
        rows: list[ExportResult] = []
        for name, run in models.items():
            bundle = open_bundle(run)
            corpus = make_nonsense() if arguments.quick else load_corpus(bundle.folder, "test")
            for to, quantization in WANTED:
                if arguments.quick and (quantization != "float32"):
                    continue
                if quantization == "bfloat16" and (problem := bf16_problem()):
                    skip(f"{name}, {to}, {quantization}", problem)
                    continue
                out = folder / f"{name}-{to}-{quantization}"
                try:
                    rows.append(measure_export(name, bundle.folder, to, quantization, out, corpus, arguments.rounds))
                except HeedfulError as error:
                    if isinstance(error, ProofError):
                        raise
                    print(f"{name}, {to}: {error}")
                    continue
                result = rows[-1]
                print(
                    f"{result.name}: {result.same} of {result.lines} the same, {result.ties} ties, "
                    f"{result.cut} without end, log p within {result.largest:.1e}, "
                    f"BLEU {result.theirs:.2f} (ours {result.ours:.2f}), {result.speed:.2f} x our speed, "
                    f"{result.megabytes:.1f} MB, first answer after {result.first:.2f} s",
                    flush=True,
                )
        caught, planted = count_caught_sabotages()
        print(f"sabotaged exports caught: {caught} of {planted}")
        others = {}
        if (DATA / "pretrained-ct2-aren").is_dir() and (DATA / "pretrained-g2p-en").is_dir():
            others = count_known_answers(100 if arguments.quick else None)
        else:
            skip("what models of others are known to say", "HEEDFUL_DATA has no pretrained-ct2-aren, pretrained-g2p-en")
        for what, (right, all_of) in others.items():
            print(f"{what} that models of others are known to say: {right:,} of {all_of:,}")
        for what, wanted in RUN_TIME.items():
            print(f"packages of a run-time install, {what}: {count_packages(wanted)}")
        exact = [result for result in rows if result.name.endswith("float32")]
        quantized = [result for result in rows if result.name.endswith("int8")]
        claims = [
            ("float32: share with the same tokens", min(result.same / result.lines for result in exact), 0.995),
            (
                "float32: share with the same tokens, or a tie, or no end",
                min((result.same + result.ties + result.cut) / result.lines for result in exact),
                1,
            ),
            ("float32: -log10 of the largest difference of log p", -log10(max(result.largest for result in exact)), 4),
            ("sabotaged exports caught, of 20", caught, planted),
            *((f"{what} of models of others", right, all_of) for what, (right, all_of) in others.items()),
        ]
        if quantized:
            claims.append(
                (
                    "int8: 0.3 - the largest loss of BLEU",
                    0.3 - max(result.ours - result.theirs for result in quantized),
                    0,
                )
            )
        code = verdict(claims)
        print(f"the same tokens in the worst float32 export: {100 * claims[0][1]:.1f} % of the sentences")
        return code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
