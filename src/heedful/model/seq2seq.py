"""p(y | x) = prod_t p(y_t | y_<t, x), with any encoder and any decoder."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.model.loss import Loss, chunked_loss
from heedful.nn.contract import Decoder, Encoder


class Seq2Seq(nn.Module):
    """An encoder and a decoder; calling it gives the loss of a batch under teacher forcing.

    The loss is computed in here, not outside, so that wrappers which act on the root's forward
    (DistributedDataParallel, FSDP2) see every use of the output table.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, *, smoothing: float = 0.0, agreement: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.smoothing, self.agreement = smoothing, agreement

    def forward(self, batch: Batch) -> Loss:
        """The batch's loss, summed over its target tokens; smoothed while training, and read twice for agreement."""
        smoothing, agreement = (self.smoothing, self.agreement) if self.training else (0.0, 0.0)
        batch = batch.repeat_rows() if agreement else batch
        memory = self.encoder(*batch.source)
        decoded, _ = self.decoder(batch.inputs, self.decoder.start(memory))
        states = decoded.states.flatten(0, 1).index_select(0, batch.target_positions)
        return chunked_loss(output_of(self.decoder), states, batch.targets, smoothing=smoothing, agreement=agreement)

    if TYPE_CHECKING:
        __call__ = forward


def output_of(decoder: Decoder) -> Callable[[Tensor], Tensor]:
    """What turns states into logits: an `nn.Linear`, where the decoder promises one, or just its `project`.

    A decoder may have an attribute `plain_projection`, and thereby promise that its `project` is that `nn.Linear` and
    nothing else. The loss can then differentiate it by hand, and search can write its result where it likes.
    """
    output = getattr(decoder, "plain_projection", None)
    return output if type(output) is nn.Linear else decoder.project
