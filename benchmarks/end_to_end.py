"""From raw text to a scored model with one command: Multi30k English to German, on the 29,000 pairs only.

    heedful train train.en.gz train.de.gz --recipe RECIPE --time TIME --validation .. --test .. --out RUN

Everything is chosen on the validation set; the tests are scored once, by beam search, cased and detokenised, with
sacreBLEU's signature. Prints the curve and the scores. A run that is finished is not repeated, only printed; one that
was interrupted goes on. Claim: test2016 reaches FLOORS.

    python benchmarks/end_to_end.py --recipe transformer-tiny --time 60m --run DIR [--quick]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"
TESTS = {"test2016": "test_2016_flickr", "test2017": "test_2017_flickr", "mscoco": "test_2017_mscoco"}
FLOORS = {"transformer-tiny": 36.0, "lstm-bahdanau": 33.0}  # cased BLEU of test2016, after about an hour


def settings(recipe: str, run: Path) -> str:
    """A heedful.toml: only what the recipe cannot know."""
    lines = [f'recipe = "{recipe}"', 'source = "en"', 'target = "de"', "seed = 1"]
    for split, name, stem in [
        ("train", "train", "train"),
        ("validation", "validation", "val"),
        *(("test", name, stem) for name, stem in TESTS.items()),
    ]:
        files = [str(DATA / f"{stem}.{language}.gz") for language in ("en", "de")]
        lines += ["", f"[[data.{split}]]", f'name = "{name}"', f"files = {json.dumps(files)}"]
    return "\n".join([*lines, "", "[train]", f"folder = {json.dumps(str(run))}"]) + "\n"


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="30 seconds, a smaller model, and hardly a claim")
    options.add_argument("--recipe", default="transformer-tiny", choices=list(FLOORS))
    options.add_argument("--time", default="60m")
    options.add_argument("--run", type=Path, help="the run directory, kept")
    given = options.parse_args()
    header(__file__)
    with tempfile.TemporaryDirectory() as made:
        run = given.run.absolute() if given.run else Path(made) / "run"
        toml = Path(made) / "heedful.toml"
        toml.write_text(settings(given.recipe, run), encoding="utf-8")
        command = [sys.executable, "-m", "heedful", "train", str(toml), "--time", "30s" if given.quick else given.time]
        if given.quick:
            command += ["--set", "train.validate_pairs=50", "--set", "train.batch_tokens=1024"]
        print(
            f"# heedful train heedful.toml --time {command[6]}, where heedful.toml has recipe = {given.recipe}",
            flush=True,
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        found = records(run)
    for one in found:
        if one["event"] == "note":
            print(f"# {one['text']}")
    print(f"{'step':>7} {'pass':>6} {'minutes':>8} {'tokens/s':>9} {'loss':>7} {'chrF':>6} {'BLEU':>6}   greedy")
    stepped: dict[str, Any] = {}
    for one in found:
        if one["event"] == "stepped":
            stepped = one
        elif one["event"] == "validated" and stepped:
            print(
                f"{one['step']:7,} {stepped['epoch']:6.1f} {stepped['elapsed'] / 60:8.1f} "
                f"{stepped['tokens_per_second']:9,.0f} {one['loss']:7.3f} {one['chrf']:6.2f} {one['bleu']:6.2f}   "
                f"{one['weights']}{'  best' if one['best'] else ''}"
            )
    ended = [one for one in found if one["event"] == "ended"][-1]  # one that was scored again has two
    scores = ended["scores"]
    print(f"{ended['why']} after {ended['elapsed'] / 60:.1f} minutes; weights: {ended['weights']}; "
          f"beam {scores['beam']}, length penalty {scores['length_penalty']}")  # fmt: skip
    for corpus in ("validation", *TESTS):
        for metric in ("bleu", "chrf"):
            one = scores[corpus][metric]
            print(f"{corpus:10} {metric:4} {one['value']:6.2f}  {one['signature']}")
    floor = 0.1 if given.quick else FLOORS[given.recipe]
    return verdict([(f"{given.recipe}: BLEU of test2016", scores["test2016"]["bleu"]["value"], floor)])


if __name__ == "__main__":
    sys.exit(main())
