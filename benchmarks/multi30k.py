"""Multi30k on two cores: the scores of heedful's commands and recipes.

    python benchmarks/multi30k.py --row tiny-1 --runs DIR   # train a row, or resume it, and keep its results
    python benchmarks/multi30k.py                           # print the table of all kept rows, and check its claims
    python benchmarks/multi30k.py --quick                   # the same with fewer samples for the intervals

A row is a list of commands that run in DIR, where the corpora are unpacked; finished commands are listed in ROW.ended
and are not repeated. The results are kept in benchmarks/results/multi30k/ROW: the commands with date, commit and
machine (about.txt), the output and metrics of training, its resolved settings, and the translations of the test sets,
from which the table is recomputed. All rows decode with a beam of 5 and the default length penalty of 1. The penalty is
not tuned: validation has longer references than the tests, and a tuned penalty makes translations of test2016 too long
(1.7 % for seed 2).

Two metrics, never mixed. A, as in the literature: lowercased, Moses-normalized and -tokenized, BLEU of these tokens
against the references of the data set; sacremoses reproduces them exactly from raw text (checked on every run). B,
ours: cased raw text, sacreBLEU with its 13a tokenizer, and chrF2, with 95 % bootstrap intervals.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import mean, stdev

import polars
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from heedful.corpus.rules import letters_only
from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"
KEPT = Path(__file__).resolve().parent / "results" / "multi30k"
STEMS = {"test2016": "test_2016_flickr", "test2017": "test_2017_flickr", "mscoco": "test_2017_mscoco"}
LENGTHS = {"de": (12103, 10758, 5158), "fr": (13988, 12596, 5710)}  # tokens of the references of metric A
ALIKE = "--beam 5 --length-penalty 1"  # how every row translates
UNLIKE = {("test2016", "fr"): 1}  # references that sacremoses does not give; every other set: none


@dataclass(frozen=True)
class Row:
    """A row of the table: its description, its commands, and the model to score."""

    what: str
    commands: tuple[str, ...]
    model: str  # what follows `heedful translate`
    target: str = "de"
    before: tuple[str, ...] = ()  # runs that are made on the way, whose measurements are kept too


PAIRS = "train.en train.de --validation val.en --validation val.de"
AGREE = "--set train.r_drop=3 --set train.batch_tokens=1024 --set train.learning_rate=1e-3 --set train.best_by=bleu"


def hour(row: str, recipe: str, *more: str, what: str = "", target: str = "de") -> Row:
    """Train a recipe on the 29,000 pairs for an hour, selecting by BLEU, the metric of the table."""
    files = PAIRS.replace(".de", f".{target}")
    options = (f"--recipe {recipe} --time 60m", *more, "--set train.best_by=bleu", "--out", row)
    return Row(f"{recipe}{what}, 60 minutes", (" ".join(("heedful train", files, *options)),), row, target)


TINY = {f"tiny-{seed}": seed for seed in (1, 2, 3)}
ROWS: dict[str, Row] = {
    **{row: hour(row, "transformer-tiny", f"--set seed={seed}", what=f", seed {seed}") for row, seed in TINY.items()},
    "lstm": hour("lstm", "lstm-bahdanau"),
    "hard": hour("hard", "lstm-hard"),
    "bottleneck": hour("bottleneck", "rnn-bottleneck"),
    "tiny-fr": hour("tiny-fr", "transformer-tiny", what=" to French", target="fr"),
    "best": Row(
        "seed 1, then 90 minutes with agreement",
        (f"heedful train {PAIRS} --from tiny-1 --time 90m {AGREE} --out best",),
        "best",
    ),
    "captions": Row(
        "with captions that were translated back",
        (
            "heedful train train.de train.en --validation val.de --validation val.en --recipe transformer-tiny"
            " --time 30m --set train.best_by=bleu --out reverse",
            "heedful export reverse --to ctranslate2 --quantization int8 --out reverse-fast",
            "heedful translate reverse-fast --bulk captions.de captions.en",
            "heedful train mixed.toml",
            f"heedful train {PAIRS} --from mixed --time 25m {AGREE} --out captions",
        ),
        "captions",
        before=("reverse",),
    ),
    "mixed": Row("the same, before its last 25 minutes", (), "mixed"),
    "ensemble": Row("the three seeds of transformer-tiny together", (), "tiny-1 --ensemble tiny-2 --ensemble tiny-3"),
}


# ------------------------------------------------------------------------------------------------------ the metrics


def lines(path: Path) -> list[str]:
    """The lines of a file, compressed or not."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode().removesuffix("\n").split("\n")


def literature(texts: list[str], language: str) -> list[str]:
    """Lowercased, normalized, tokenized: the text form of metric A."""
    normalize, tokenize = MosesPunctNormalizer(lang=language).normalize, MosesTokenizer(lang=language).tokenize
    return [tokenize(normalize(text.lower()), return_str=True) for text in texts]


@dataclass(frozen=True)
class Test:
    """A test set: its raw references, and those in the form of metric A."""

    raw: list[str]
    formed: list[str]


def references(language: str) -> dict[str, Test]:
    """All test sets of a language; checks that our form of the raw references equals the literature's."""
    found = {}
    for (name, stem), length in zip(STEMS.items(), LENGTHS[language], strict=True):
        raw, formed = lines(DATA / f"{stem}.{language}.gz"), lines(DATA / "lc.norm.tok" / f"{stem}.{language}.gz")
        unlike = [(one, other) for one, other in zip(literature(raw, language), formed, strict=True) if one != other]
        count = sum(len(text.split()) for text in formed)
        print(f"# {name}.{language}: {count} tokens; our form differs from the literature's in {len(unlike)} lines")
        for one, other in unlike:
            print(f"#   ours {one}\n#   its  {other}")
        if count != length or len(unlike) != UNLIKE.get((name, language), 0):
            raise SystemExit(f"metric A is not the literature's on {name}.{language}")
        found[name] = Test(raw, formed)
    return found


def score_a(hypotheses: list[str], test: Test, language: str) -> float:
    """BLEU on the tokens of metric A."""
    metric = BLEU(tokenize="none", lowercase=True, force=True)
    return float(metric.corpus_score(literature(hypotheses, language), [test.formed]).score)


def score_b(hypotheses: list[str], test: Test, samples: int) -> tuple[str, str, list[str]]:
    """BLEU and chrF2 of raw text, with half the width of the intervals, and signatures."""
    told, signatures = [], []
    for metric in (BLEU(), CHRF()):
        found = metric.corpus_score(hypotheses, [test.raw], n_bootstrap=samples)
        told.append(f"{found.score:5.2f} ± {found._ci:4.2f}")
        signatures.append(str(metric.get_signature()))
    return told[0], told[1], signatures


# -------------------------------------------------------------------------------------------------------- the table


def table(samples: int) -> int:
    """Score all kept rows and return the exit code."""
    kept = [row for row in ROWS if (KEPT / row / "about.txt").is_file()]
    languages = dict.fromkeys(("de", *(ROWS[row].target for row in kept)))
    tests = {language: references(language) for language in languages}
    print(f"\n{'':44}{'A: test2016':>12}{'test2017':>9}{'mscoco':>8}   B: test2016 BLEU   chrF2")
    scores: dict[str, float] = {}
    signatures: list[str] = []
    for row in kept:
        language = ROWS[row].target
        said = {name: lines(KEPT / row / f"{name}.{language}") for name in STEMS}
        a = [score_a(said[name], tests[language][name], language) for name in STEMS]
        bleu, chrf, signatures = score_b(said["test2016"], tests[language]["test2016"], samples)
        scores[row] = a[0]
        print(f"{ROWS[row].what:44}{a[0]:12.2f}{a[1]:9.2f}{a[2]:8.2f}   {bleu:>13}   {chrf}", flush=True)
    print("\nA  sacreBLEU " + sacrebleu.__version__ + ", tokens as they are, of the literature's form")
    print("\n".join(f"B  {one}" for one in signatures))
    return verdict(claims(scores))


def claims(scores: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """The claims about the available rows, on metric A of test2016."""
    if seeds := [scores[row] for row in TINY if row in scores]:
        spread = f", deviation {stdev(seeds):.2f}" if len(seeds) > 1 else ""
        yield f"transformer-tiny, mean of {len(seeds)} seeds{spread}", mean(seeds), 39.5
    if "best" in scores:
        yield "the best from the pairs", scores["best"], 41.0
    if "lstm" in scores:
        yield "lstm-bahdanau", scores["lstm"], 36.5
        if "hard" in scores:
            yield "soft attention, minus attention that draws a slot", scores["lstm"] - scores["hard"], 0.0
        if "bottleneck" in scores:
            yield "what attention is worth", scores["lstm"] - scores["bottleneck"], 5.0


# --------------------------------------------------------------------------------------------------------- the rows


def unpacked(place: Path) -> None:
    """Unpack the corpora to plain files."""
    stems = {"train": "train", "val": "val", **STEMS}
    for name, stem in stems.items():
        for language in ("en", "de", "fr"):
            (place / f"{name}.{language}").write_bytes(gzip.decompress((DATA / f"{stem}.{language}.gz").read_bytes()))
    shutil.copy(Path(__file__).with_name("multi30k_mixed.toml"), place / "mixed.toml")
    captions = monolingual()
    (place / "captions.de").write_text("".join(f"{one}\n" for one in captions), encoding="utf-8")


def monolingual() -> list[str]:
    """Unique German captions of the training images that are not translations (task 2), without held-out ones.

    Copies of validation and test are matched like in `heedful check`, ignoring case, spaces and punctuation.
    """
    files = [DATA / "task2" / f"train.{number}.de.gz" for number in range(1, 6)]
    apart = [DATA / f"{stem}.de.gz" for stem in ("val", *STEMS.values(), "test_2018_flickr")]
    every, held = (
        polars.DataFrame({"text": list(dict.fromkeys(text for file in some for text in lines(file)))}).with_columns(
            key=letters_only(polars.col("text"))
        )
        for some in (files, apart)
    )
    kept = every.filter(polars.col("key") != "").join(held, on="key", how="anti", maintain_order="left")
    print(f"# captions: {len(every):,} different ones, of which {len(every) - len(kept)} are empty or held out")
    return kept["text"].to_list()


def made(name: str, place: Path) -> None:
    """Run the commands of a row and keep the results; resumes an interrupted training."""
    row, about = ROWS[name], StringIO()
    with redirect_stdout(about):
        header(__file__)
    place.mkdir(parents=True, exist_ok=True)
    unpacked(place)
    answers = [f"heedful translate {row.model} {ALIKE} {test}.en > {name}.{test}.{row.target}" for test in STEMS]
    ended = place / f"{name}.ended"
    ended.touch()
    for command in (*row.commands, *answers):
        if command in ended.read_text(encoding="utf-8").splitlines():
            continue
        print(command, flush=True)
        typed(command, place, place / f"{name}.log")
        with ended.open("a", encoding="utf-8") as file:
            file.write(f"{command}\n")
    kept = KEPT / name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    commands = "".join(f"$ {command}\n" for command in (*row.commands, *answers))
    (kept / "about.txt").write_text(about.getvalue().replace(str(place), "DIR") + commands, encoding="utf-8")
    for test in STEMS:
        shutil.copy(place / f"{name}.{test}.{row.target}", kept / f"{test}.{row.target}")
    sources = {"log": place / f"{name}.log"}
    for own in ("heedful.toml", "metrics.jsonl"):
        sources |= {own: place / name / own} | {f"{run}.{own}": place / run / own for run in row.before}
    for as_kept, path in sources.items():
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace(f"{place}/", "DIR/")
            text = without_samples(text) if path.suffix == ".jsonl" else without_sentences(text)
            (kept / as_kept).write_text(text, encoding="utf-8")


def without_samples(events: str) -> str:
    """The metrics of training without sample sentences, which are part of the corpus."""
    found = [json.loads(line) for line in events.splitlines()]
    return "".join(json.dumps({key: one[key] for key in one if key != "samples"}) + "\n" for one in found)


def without_sentences(log: str) -> str:
    """The output of training without source and reference sentences; the model's output is kept."""
    return re.sub(r"^\S+ \S+ +(source|reference)  .*\n", "", log, flags=re.M)


def typed(command: str, place: Path, log: Path) -> None:
    """Run in a shell in that directory; the output goes to the log."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with log.open("a", encoding="utf-8") as said:
        said.write(f"$ {command}\n")
        said.flush()
        done = subprocess.run(
            command, shell=True, cwd=place, stdout=said, stderr=said, env={**os.environ, "PATH": path}, check=False
        )
    if done.returncode:
        raise SystemExit(f"ended with {done.returncode}: {log.read_text(encoding='utf-8')[-2000:]}")


def main() -> int:
    """Train a row, or print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer samples for the intervals")
    options.add_argument("--row", choices=ROWS, help="train this one")
    options.add_argument("--runs", type=Path, help="where runs are kept; they are resumed")
    given = options.parse_args()
    if given.row:
        if given.runs is None:
            options.error("--row needs --runs DIR")
        made(given.row, given.runs.absolute())
        return 0
    header(__file__)
    return table(100 if given.quick else 1000)


if __name__ == "__main__":
    sys.exit(main())
