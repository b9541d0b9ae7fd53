"""Run by torchrun: three steps of a small tied model, sharded over the ranks, against the same model unsharded."""

import sys
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from heedful.data.batch import collate
from heedful.model.shard import shard, sharded_layers
from heedful.nn.layers import initialize
from test_size import transformer


def model() -> nn.Module:
    torch.manual_seed(0)
    made = transformer(50, 2, 16, 32, 4).eval()  # eval: dropout would differ between one process and two
    initialize(made)
    return made


def batch(rank: int, step: int):
    draw = torch.Generator().manual_seed(100 * step + rank)
    pairs = [(torch.randint(3, 50, (6,), generator=draw).tolist(), torch.randint(3, 50, (5,), generator=draw).tolist())]
    return collate(pairs * 3, bos=1, eos=2, pad=0)


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole, parts = model(), shard(model())
    assert len(sharded_layers(parts)) == 4
    # A large eps: the biases of keys have no gradient but rounding, which AdamW would blow up to whole steps.
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-2, eps=1e-4) for one in (whole, parts)]
    for step in range(3):
        own = parts(batch(rank, step))
        (own.smoothed / own.tokens).backward()  # FSDP averages the ranks' gradients
        everyone = [whole(batch(other, step)) for other in range(ranks)]
        sum(loss.smoothed / loss.tokens for loss in everyone).div(ranks).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    largest = 0.0
    for (name, one), (_, other) in zip(whole.named_parameters(), parts.named_parameters(), strict=True):
        assert other.to_local().numel() < one.numel(), f"{name} is not sharded"
        largest = max(largest, float((one - other.full_tensor()).abs().max().detach()))
    assert largest <= 1e-5, largest
    moved = float(
        (dict(whole.named_parameters())["encoder.embed.table.weight"] - model().encoder.embed.table.weight)
        .abs()
        .max()
        .detach()
    )
    assert moved > 1e-3, "the steps must have changed something"
    if rank == 0:
        print(f"largest difference {largest:.2e} after three steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
