"""How much memory does the loss over 256 thousand words need?

Peak resident memory of one forward and backward pass of the loss (4096 tokens, width 512, 256,000 words, fp32), in
addition to the weights and their gradient. Claim: under 1 GiB. A plain implementation stores 4096 x 256,000 logits
(4.2 GB) at least twice.

    python benchmarks/loss_memory.py [--quick]
"""

import argparse
import ctypes
import re
import sys
from pathlib import Path

import torch
from torch import nn

from heedful.model.loss import chunked_loss
from report import header, verdict


def status(field: str) -> float:
    """A memory field of this process, in GiB."""
    return int(re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**20  # type: ignore[index]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="1024 tokens; the same claim")
    arguments = options.parse_args()
    header(__file__)
    tokens = 1024 if arguments.quick else 4096
    torch.manual_seed(0)
    output = nn.Linear(512, 256_000, bias=False)
    states = torch.randn(tokens, 512, requires_grad=True)
    targets = torch.randint(256_000, (tokens,))
    warm = nn.Linear(8, 600)
    chunked_loss(warm, torch.randn(4, 8), torch.zeros(4, dtype=torch.long)).smoothed.backward()  # load the libraries
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    loss = chunked_loss(output, states, targets, label_smoothing=0.1)
    (loss.smoothed / loss.tokens).backward()
    peak = status("VmHWM")
    gradients = sum(part.numel() * 4 for part in (output.weight, states)) / 2**30
    beyond = peak - before - gradients
    print(f"weights {output.weight.numel() * 4 / 2**30:.3f} GiB, gradients {gradients:.3f} GiB, {tokens} tokens")
    print(f"peak beyond both: {beyond:.3f} GiB")
    return verdict([("1 GiB minus what the loss needs, in GiB", 1.0 - beyond, 0.0)])


if __name__ == "__main__":
    sys.exit(main())
