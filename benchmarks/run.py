"""Run every benchmark without arguments, one after another, and print one table of what they claim and measured.

    python benchmarks/run.py [--quick] [--only NAME ...] [--logs DIR] [--timeout SECONDS]

--quick: the short form of each, under a minute on two cores. Short forms have looser bounds, which are for noise, and
the bounds of speed still need a machine that does nothing else. A script whose corpus or package is not here is
skipped, and so is a claim for which the hardware is missing. The full output of each script is kept in DIR.

Exit code: 1 if a claim does not hold, or a script fails or takes longer than the timeout.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from report import header

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("HEEDFUL_DATA", HERE.parents[1] / "shared" / "data"))
QUICK_TIMEOUT_SECONDS, FULL_TIMEOUT_SECONDS = 300.0, 6 * 3600.0
MAX_LINE = 150  # characters of a line in the table


@dataclass(frozen=True)
class Benchmark:
    """A script: what it claims, and what must be here to run it."""

    name: str
    claim: str
    corpora: tuple[str, ...] = ()  # directories of HEEDFUL_DATA
    packages: tuple[str, ...] = ()  # beyond those of heedful[train]
    programs: tuple[str, ...] = ()
    linux_only: bool = False

    def problem(self) -> str:
        """Why it cannot run here; empty if it can."""
        if self.linux_only and sys.platform != "linux":
            return "needs Linux"
        missing = [f"package {name}" for name in self.packages if find_spec(name) is None]
        missing += [f"program {name}" for name in self.programs if shutil.which(name) is None]
        missing += [f"corpus {name} in HEEDFUL_DATA" for name in self.corpora if not (DATA / name).is_dir()]
        return f"needs {', '.join(missing)}" if missing else ""


MULTI30K, TATOEBA = ("multi30k",), ("tatoeba-eng-por", "tatoeba-eng-rus")
BENCHMARKS = (
    Benchmark("laws", "every law holds for every combination of encoder, decoder, score, normalizer and search"),
    Benchmark("learn", "models learn to copy, reverse and sort: 99 % of unseen sequences exact"),
    Benchmark("lab", "the experiments of heedful lab find the effects that the lectures claim"),
    Benchmark("latent", "CTC and sampled attention equal the enumeration of all alignments; CTC suits monotone tasks",
              ("g2p", "transliteration", "free-spoken-digits"), ("soundfile",), linux_only=True),
    Benchmark("loss_memory", "the loss over 256,000 words needs under 1 GiB", linux_only=True),
    Benchmark("step", "a training step is as fast as hand-written PyTorch, and faster than nn.Transformer"),
    Benchmark("decode", "decoding is at least twice as fast as Hugging Face, and nearly as fast as a bare loop"),
    Benchmark("translate_speed", "text to text is twice as fast as Hugging Face; 95 % of the time in the engine",
              packages=("transformers", "ctranslate2")),
    Benchmark("train_speed", "the training loop is as fast as the bare step; 2.5 x other toolkits, if installed",
              MULTI30K),
    Benchmark("train_memory", "the memory of training does not grow", MULTI30K, linux_only=True),
    Benchmark("plan", "the batch plan is exact, tight, fair and quick for a billion pairs", MULTI30K),
    Benchmark("corpus", "checking is 10 x a loop over rows; tokenizing costs what SentencePiece costs",
              ("multi30k", *TATOEBA), ("regex",)),
    Benchmark("dedup", "deduplication is exact, linear in time and bounded in memory", linux_only=True),
    Benchmark("hostile", "a hostile corpus is prepared with every pair accounted for", linux_only=True),
    Benchmark("doctor", "heedful check finds planted faults, and no errors in good corpora", ("multi30k", *TATOEBA)),
    Benchmark("sentinel", "alarms find faults of translations, with under 0.5 % false alarms",
              ("multi30k", *TATOEBA, "newstest", "ntrex", "flores-bergamot", "debian-parallel")),
    Benchmark("sentences", "no sentence of a line is lost, and sentence ends are found",
              (*TATOEBA, "newstest", "ntrex", "flores-bergamot"), ("sacremoses", "sentencex")),
    Benchmark("quantization", "int8 serving loses at most 0.3 BLEU against PyTorch", TATOEBA, ("ctranslate2",)),
    Benchmark("silent_faults", "faults of a translation are flagged, and answers do not depend on the batch",
              (TATOEBA[0], "ntrex")),
    Benchmark("suppressed_words", "the sample models answer news without obscene and hateful words",
              ("newstest", "ntrex")),
    Benchmark("confidence", "probabilities of chrF are calibrated, and 90 % bounds cover 88 to 92 % within the domain",
              (*TATOEBA, "newstest", "flores-bergamot", "debian-parallel"), ("sacrebleu",)),
    Benchmark("related_models", "metrics, graph attention, word vectors and labels are as in other libraries",
              ("planetoid", TATOEBA[0], "tatoeba-mono", "word-similarity", "emoji-captions", "ntrex", "g2p"),
              ("nltk", "pycocoevalcap", "gensim", "sklearn")),
    Benchmark("metrics", "scores equal those of sacreBLEU and published ones",
              ("wmt22-systems", "wmt17-ende-systems", "gold-alignments"), ("sacrebleu",)),
    Benchmark("alignment", "the head that training chooses aligns words better than the diagonal",
              ("multi30k", "gold-alignments")),
    Benchmark("deletion_curves", "erasure and gradients find the source pieces that a model used better than chance",
              MULTI30K),
    Benchmark("multi30k", "BLEU of the committed Multi30k runs", MULTI30K, ("sacremoses",)),
    Benchmark("autopilot", "the autopilot chooses at least as well as the better recipe", ("multi30k", *TATOEBA)),
    Benchmark("sources", "a language model beats 5-grams; a model that describes pictures looks at what it names",
              ("tatoeba-mono", "emoji-captions", "im2latex-sample"), ("PIL",), linux_only=True),
    Benchmark("speech", "models of recordings recognize spoken digits, and their attention moves forward",
              ("free-spoken-digits",), ("soundfile",), linux_only=True),
    Benchmark("kill9", "a run that is killed again and again ends with the same bits", MULTI30K, linux_only=True),
    Benchmark("elastic", "a run continues on other numbers of processes to the same bits, at little cost", MULTI30K,
              linux_only=True),
    Benchmark("faults", "failing disks, damaged files and bad batches spoil no checkpoint", linux_only=True),
    Benchmark("ray_shards", "a cluster whose nodes are killed prepares the same corpus", TATOEBA[:1], ("ray",),
              linux_only=True),
    Benchmark("export_parity", "exports compute what the model computes, and sabotaged ones are caught",
              packages=("ctranslate2", "transformers", "onnxruntime")),
    Benchmark("hostile_models", "hostile model directories are rejected, or harmless", linux_only=True),
    Benchmark("bulk", "a bulk translation that is killed ends with the same bytes; pieces cost under 10 %",
              packages=("ctranslate2",)),
    Benchmark("pipes", "heedful translate keeps its lines, whatever they contain", MULTI30K, ("hypothesis",)),
    Benchmark("serve_speed", "the server keeps 85 % of the speed of CTranslate2", packages=("ctranslate2", "uvicorn")),
    Benchmark("serve_overload", "under 10 x overload 90 % of the capacity is still served",
              packages=("ctranslate2", "uvicorn"), linux_only=True),
    Benchmark("serve_faults", "crashes, restarts and model swaps lose no admitted request",
              packages=("ctranslate2", "uvicorn"), linux_only=True),
    Benchmark("serve_attack", "hostile requests and models neither crash the server nor keep it busy",
              packages=("ctranslate2", "uvicorn", "hypothesis", "schemathesis"), linux_only=True),
    Benchmark("serve_models", "two models together are as fast as one, and a crash of one does not delay another",
              packages=("ctranslate2", "uvicorn"), linux_only=True),
    Benchmark("contention", "two heedful processes on one machine share its cores", linux_only=True),
    Benchmark("viewer", "an inspection page is small, and quick in a real browser", packages=("playwright",)),
    Benchmark("sameness", "a change leaves every number as it was", packages=("ctranslate2",), programs=("git",)),
    Benchmark("commit_speed", "a commit is as fast as the one before it", programs=("git",)),
)  # fmt: skip
LEFT_OUT = {  # files beside the scripts
    "bare": "a helper of step, decode and train_speed",
    "kneser_ney": "a helper of sources",
    "media_faults": "a helper of sources and speech",
    "report": "a helper of all scripts",
    "run": "this file",
    "serving": "a helper of bulk and serve_*",
    "source_data": "a helper of sources",
    "peers": "other toolkits, which need environments of their own; train_speed runs those that are installed",
}


@dataclass(frozen=True)
class Outcome:
    """What came of a script: holds, MISS, FAILED or skipped."""

    benchmark: Benchmark
    result: str
    figures: Sequence[str]
    seconds: float = 0.0


def run(benchmark: Benchmark, quick: bool, log: Path, timeout_seconds: float) -> Outcome:
    """Run a script in its own process group; its output goes to `log`."""
    if problem := benchmark.problem():
        return Outcome(benchmark, "skipped", [problem])
    command = [sys.executable, str(HERE / f"{benchmark.name}.py"), *(["--quick"] if quick else [])]
    begin = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=HERE.parent, start_new_session=True
        )
        try:
            code: int | None = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
    seconds = time.perf_counter() - begin
    text = log.read_text(encoding="utf-8", errors="replace")
    if code is None:
        return Outcome(
            benchmark, "FAILED", [f"took longer than {timeout_seconds:.0f} s", *last_lines(text, 1)], seconds
        )
    return judge(benchmark, code, text, seconds)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a script that is still running, and kill what it left, such as servers."""
    if os.name == "nt":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)  # it removes its temporary files and work trees
                process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def judge(benchmark: Benchmark, code: int, text: str, seconds: float) -> Outcome:
    """Read the claims that a script printed: `ok`, `MISS` and `SKIP` at the beginning of a line."""
    lines = text.splitlines()
    claims = [line for line in lines if line.startswith(("ok   ", "MISS "))]
    skipped = list(dict.fromkeys(line for line in lines if line.startswith("SKIP ")))
    if any(line.startswith("MISS ") for line in claims):
        return Outcome(benchmark, "MISS", claims + skipped, seconds)
    if code:
        return Outcome(benchmark, "FAILED", [*claims, f"exit code {code}: {' '.join(last_lines(text, 1))}"], seconds)
    if skipped and not claims:
        return Outcome(benchmark, "skipped", [line.removeprefix("SKIP ") for line in skipped], seconds)
    return Outcome(benchmark, "holds", claims + skipped or last_lines(text, 1), seconds)


def last_lines(text: str, count: int) -> list[str]:
    """The last lines that are not blank."""
    return [line.strip() for line in text.splitlines() if line.strip()][-count:]


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print script, result, seconds and claim of each, and its figures below."""
    print(f"\n{'script':16} {'result':8} {'seconds':>7}  claim, and its figures")
    for outcome in outcomes:
        benchmark = outcome.benchmark
        print(f"{benchmark.name:16} {outcome.result:8} {outcome.seconds:7.1f}  {benchmark.claim}")
        for figure in outcome.figures:
            print(f"{'':35}{figure[:MAX_LINE]}")
    counts = {
        kind: sum(outcome.result == kind for outcome in outcomes) for kind in ("holds", "MISS", "FAILED", "skipped")
    }
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{', '.join(f'{count} {kind}' for kind, count in counts.items())}; {seconds:.0f} s")


def main() -> int:
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the short form of each")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="for the full output (default: a temporary directory)")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="of a script (default: 300 if --quick, else 6 h)"
    )
    arguments = parser.parse_args()
    header(__file__)
    logs = arguments.logs or Path(tempfile.mkdtemp(prefix="benchmarks-"))
    logs.mkdir(parents=True, exist_ok=True)
    print(f"# logs     {logs}", flush=True)
    timeout_seconds = arguments.timeout or (QUICK_TIMEOUT_SECONDS if arguments.quick else FULL_TIMEOUT_SECONDS)
    selected = [benchmark for benchmark in BENCHMARKS if arguments.only is None or benchmark.name in arguments.only]
    outcomes: list[Outcome] = []
    for number, benchmark in enumerate(selected, 1):
        print(f"[{number}/{len(selected)}] {benchmark.name} ...", end=" ", file=sys.stderr, flush=True)
        outcomes.append(run(benchmark, arguments.quick, logs / f"{benchmark.name}.txt", timeout_seconds))
        print(f"{outcomes[-1].result}, {outcomes[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    print_table(outcomes)
    return int(any(outcome.result in ("MISS", "FAILED") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
