"""Do the models learn simple tasks?

Copy, reverse and sort with lengths up to 20 (10 without attention) and 20 words; models: Transformer, LSTM + additive,
GRU + bilinear, and the bottleneck without attention; fixed seed and number of updates. Claims: at least 99 % of unseen
sequences are exact; on reverse, the best head has at least 0.9 of its attention on the slot to copy (within one slot
for recurrent encoders). Times are reported without a claim.

    python benchmarks/learn.py [--quick]
"""

import argparse
import sys
from pathlib import Path

from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.toy_tasks import RECIPES, TASKS, anti_diagonal, exact, train


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--quick", action="store_true", help="GRU + bilinear on copy only, with 600 updates and a looser bound"
    )
    given = options.parse_args()
    header(__file__)
    runs = [(name, task) for name in RECIPES for task in TASKS]
    claims = []
    for name, task in [("gru+bilinear", "copy")] if given.quick else runs:
        recipe = RECIPES[name]
        steps, minimum = (600, 0.95) if given.quick else (recipe.steps, 0.99)
        model, seconds = train(name, task, steps=steps)
        share = exact(model, task, recipe.longest)
        print(f"{name:14} {task:8} {steps:5} updates {seconds:6.1f} s  exact {share:.4f}", flush=True)
        claims.append((f"{name}, {task}: exact on unseen sequences", share, minimum))
        if task == "reverse" and name != "no attention":
            reach = 0 if name == "transformer" else 1
            mass = anti_diagonal(model, recipe.longest, reach)
            claims.append((f"{name}: attention on the anti-diagonal, within {reach}", mass, 0.9))
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
