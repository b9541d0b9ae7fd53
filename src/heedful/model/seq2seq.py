"""p(y | x) = prod_t p(y_t | y_<t, x), with any encoder and any decoder."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.model.ctc import ctc_batch_loss
from heedful.model.latent import find_sampled, latent_loss
from heedful.model.loss import Loss, chunked_loss, uncovered_attention
from heedful.nn.contract import Decoder, Encoder, Look
from heedful.nn.decoders import CTCDecoder


class Seq2Seq(nn.Module):
    """An encoder and a decoder; calling it returns the loss of a batch under teacher forcing.

    The loss is computed inside because DistributedDataParallel and FSDP2 wrap `forward` and must see every use of the
    output table.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        *,
        label_smoothing: float = 0.0,
        r_drop: float = 0.0,
        coverage_penalty: float = 0.0,
    ) -> None:
        super().__init__()
        is_special = isinstance(decoder, CTCDecoder) or find_sampled(decoder) is not None
        if r_drop and is_special:
            raise ValueError("r_drop needs the cross-entropy of tokens: use it without CTC and sampled attention")
        if coverage_penalty and is_special:
            raise ValueError("coverage_penalty needs soft attention: use it without CTC and sampled attention")
        self.encoder = encoder
        self.decoder = decoder
        self.label_smoothing, self.r_drop, self.coverage_penalty = label_smoothing, r_drop, coverage_penalty

    def forward(self, batch: Batch) -> Loss:
        """The loss of the batch, summed over its target tokens; its `nll` is the plain negative log-likelihood.

        Label smoothing, R-Drop and the coverage penalty apply in training only.
        """
        label_smoothing, r_drop = (self.label_smoothing, self.r_drop) if self.training else (0.0, 0.0)
        batch = batch.repeat_rows() if r_drop else batch
        memory = self.encoder(*batch.source)
        if isinstance(self.decoder, CTCDecoder):
            return ctc_batch_loss(self.decoder, memory, batch)
        sampled = find_sampled(self.decoder) if self.training else None
        if sampled is not None:
            return latent_loss(self.decoder, sampled, memory, batch, label_smoothing)
        penalty = self.coverage_penalty if self.training else 0.0
        decoded, _ = self.decoder(batch.inputs, self.decoder.start(memory), Look() if penalty else None)
        states = decoded.states.flatten(0, 1).index_select(0, batch.target_positions)
        project = output_projection(self.decoder)
        loss = chunked_loss(project, states, batch.targets, label_smoothing=label_smoothing, r_drop=r_drop)
        if decoded.maps is None:
            return loss
        real_steps = torch.zeros_like(batch.inputs, dtype=torch.bool)
        real_steps.view(-1)[batch.target_positions] = True
        uncovered = uncovered_attention(decoded.maps.cross, real_steps, memory.mask)
        return loss._replace(smoothed=loss.smoothed + penalty * uncovered / (2 if r_drop else 1))

    if TYPE_CHECKING:
        __call__ = forward


def output_projection(decoder: Decoder) -> Callable[[Tensor], Tensor]:
    """The function from states to logits: the decoder's `plain_projection` if it has one, otherwise its `project`.

    A decoder has `plain_projection` if its `project` only applies that `nn.Linear`. The loss can then compute the
    gradient itself, and a search can write logits into a preallocated buffer.
    """
    projection = getattr(decoder, "plain_projection", None)
    return projection if type(projection) is nn.Linear else decoder.project
