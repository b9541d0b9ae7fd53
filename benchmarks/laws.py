"""Do all laws hold for all models?

Every law of tests/support/law.py on the full product of encoder x decoder x score x normalizer x search, in double
precision; the number of heads and their combination rotate. CI runs a pairwise covering array of all six.

    python benchmarks/laws.py [--quick] [--workers 2]
"""

import argparse
import itertools
import multiprocessing
import sys
import time
from pathlib import Path

import torch

from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.law import MODEL_LAWS, check_search
from support.zoo import FACTORS, SEARCH_CASES, Case, every_case

Model = tuple[str, str, str, str, str]


def all_models() -> list[Model]:
    """Every model of the product without the search; the head variants rotate."""
    variants: dict[tuple[str, ...], list[Model]] = {}
    for case in every_case():
        if case.search == FACTORS[-1][0]:
            model = (case.encoder, case.decoder, case.heads, case.score, case.normalizer)
            variants.setdefault((case.encoder, case.decoder, case.score, case.normalizer), []).append(model)
    return [choices[turn % len(choices)] for turn, choices in enumerate(variants.values())]


def examine(model: Model) -> list[str]:
    """Check every law and every search on one model; return the failures."""
    torch.set_num_threads(1)
    failed = []
    with torch.no_grad():
        seq2seq = Case(*model, "greedy").model()
        for law in MODEL_LAWS:
            try:
                law(seq2seq)
            except AssertionError as error:
                failed.append(f"{'/'.join(model)}: {law.__name__}: {str(error).splitlines()[0]}")
        for search in SEARCH_CASES:
            try:
                check_search(Case(*model, search), seq2seq)
            except AssertionError as error:
                failed.append(f"{'/'.join(model)}/{search}: {str(error).splitlines()[:1]}")
    return failed


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="every 40th model")
    options.add_argument("--workers", type=int, default=2)
    arguments = options.parse_args()
    header(__file__)
    models = all_models()[:: 40 if arguments.quick else 1]
    total = len(models) * len(SEARCH_CASES)
    print(f"{len(models)} models x {len(SEARCH_CASES)} searches, {len(MODEL_LAWS)} laws of models", flush=True)
    begin, broken = time.perf_counter(), 0
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        for done, failed in zip(itertools.count(1), pool.imap_unordered(examine, models, chunksize=8), strict=False):
            broken += len(failed)
            for line in failed[: max(0, 50 - broken)]:
                print("BROKEN", line)
            if done % 1000 == 0:
                print(f"{done} of {len(models)} models, {time.perf_counter() - begin:.0f} s", flush=True)
    print(f"{total} combinations in {time.perf_counter() - begin:.0f} s, {broken} laws broken")
    return verdict([("minus laws broken", -broken, 0)])


if __name__ == "__main__":
    sys.exit(main())
