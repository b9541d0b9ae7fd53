"""The loss of a batch for a classifier."""

import torch

from heedful.data.batch import Batch
from heedful.model.loss import Loss, chunked_loss
from heedful.nn.contract import Memory
from heedful.nn.decoders import LabelDecoder


def label_loss(decoder: LabelDecoder, memory: Memory, batch: Batch, label_smoothing: float) -> Loss:
    """-log p(y | x), summed over the labels; slots without a known label (`?` in the data) do not count.

    Label smoothing spreads over the labels only.
    """
    states, _ = decoder.pool(memory)  # [B, L, D]
    steps = batch.inputs.size(1)
    row, step = batch.target_positions // steps, batch.target_positions % steps
    columns = decoder.column_of_id[batch.targets]
    real = memory.mask if decoder.is_per_slot else torch.ones_like(states[..., 0], dtype=torch.bool)
    has_slot = step < real.size(1)
    has_slot &= real[row, step.clamp(max=real.size(1) - 1)]
    counts = has_slot & (columns >= 0)
    vectors = states[row[counts], step[counts]]
    if not len(vectors):
        return Loss(vectors.sum(), vectors.sum().detach(), 1)
    return chunked_loss(decoder.label_logits, vectors, columns[counts], label_smoothing=label_smoothing)
