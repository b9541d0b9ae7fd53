"""CTC and sampled attention: are their losses, gradients and searches those of all alignments?

    python benchmarks/latent.py [--quick]

CTC: the sum over all paths, PyTorch's loss and gradients, the worked value of the lecture, prefix beam search against
every label sequence, 5,000 slots without underflow, and a cost that is linear in the number of slots. Sampled
attention: the mean of the REINFORCE draws against the exact gradient by enumeration, and its variance with and without
a baseline.
"""

import argparse
import itertools
import math
import sys
import time
from pathlib import Path

import torch
from torch import nn

from report import header, verdict

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "model", "nn"))

from test_ctc import paths_of, random_case, row
from test_latent import enumerate_slots, make_batch, make_model, trained

from heedful.model.latent import find_sampled, reinforce_loss
from heedful.nn.attention import Sampled
from heedful.nn.contract import Memory
from heedful.nn.ctc import count_required_slots, ctc_loss, explicit_ctc_loss, forward_backward
from heedful.nn.decoders import CTCDecoder
from heedful.search import DecodingLimits, PrefixBeam

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


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer random cases and draws")
    quick = options.parse_args().quick
    torch.set_num_threads(1)
    header(__file__)
    cases, searches, draws, rows = (100, 30, 8_000, 100) if quick else (1000, 500, 200_000, 500)

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

    return verdict(
        [
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
    )


if __name__ == "__main__":
    sys.exit(main())
