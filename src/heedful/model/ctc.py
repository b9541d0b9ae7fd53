"""The loss of a batch for a CTC decoder."""

from heedful.data.batch import Batch
from heedful.model.loss import Loss
from heedful.nn.contract import Memory
from heedful.nn.ctc import BLANK, ctc_loss
from heedful.nn.decoders import CTCDecoder


def ctc_batch_loss(decoder: CTCDecoder, memory: Memory, batch: Batch) -> Loss:
    """-log p(y | x), summed over the pairs whose labels fit into the slots; the others are left out.

    Tokens are counted as for other decoders: the labels, and an end token per pair.
    """
    labels = batch.inputs[:, 1:].contiguous()
    label_mask = labels != BLANK
    losses = ctc_loss(*decoder.slot_labels(memory), labels, label_mask)
    fits = losses.isfinite()
    nll = losses.masked_fill(~fits, 0.0).sum()
    tokens = int(((label_mask.sum(1) + 1) * fits).sum())
    return Loss(nll, nll.detach(), max(1, tokens))
