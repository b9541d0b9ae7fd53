"""p(y | x) = prod_t p(y_t | y_<t, x), with any encoder and any decoder."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.model.ctc import ctc_batch_loss
from heedful.model.labels import label_loss
from heedful.model.latent import find_sampled, latent_loss
from heedful.model.loss import Loss, chunked_loss, uncovered_attention
from heedful.nn.contract import Decoder, Encoder, Look, Memory
from heedful.nn.decoders import CTCDecoder, LabelDecoder


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
        word_dropout: float = 0.0,
        unknown_word: int = 0,
        ctc_head: CTCDecoder | None = None,
        ctc_weight: float = 0.0,
    ) -> None:
        super().__init__()
        is_special = isinstance(decoder, CTCDecoder) or find_sampled(decoder) is not None
        if r_drop and is_special:
            raise ValueError("r_drop needs the cross-entropy of tokens: use it without CTC and sampled attention")
        if coverage_penalty and is_special:
            raise ValueError("coverage_penalty needs soft attention: use it without CTC and sampled attention")
        if (r_drop or coverage_penalty) and isinstance(decoder, LabelDecoder):
            raise ValueError("r_drop and coverage_penalty are for text, not for labels: set them to 0")
        if word_dropout and isinstance(decoder, CTCDecoder | LabelDecoder):
            raise ValueError("word_dropout needs a decoder that reads its own words: set it to 0 for CTC and labels")
        self.encoder = encoder
        self.decoder = decoder
        self.ctc_head, self.ctc_weight = ctc_head, ctc_weight
        self.label_smoothing, self.r_drop, self.coverage_penalty = label_smoothing, r_drop, coverage_penalty
        self.word_dropout, self.unknown_word = word_dropout, unknown_word

    def forward(self, batch: Batch) -> Loss:
        """The loss of the batch, summed over its target tokens; its `nll` is the plain negative log-likelihood.

        Label smoothing, R-Drop, the coverage penalty, word dropout and the CTC head apply in training only. With a CTC
        head, CTC and attention are trained jointly over one encoder (Kim, Hori, Watanabe 2017):

            smoothed = ctc_weight * smoothed of CTC + (1 - ctc_weight) * smoothed of the decoder
        """
        label_smoothing, r_drop = (self.label_smoothing, self.r_drop) if self.training else (0.0, 0.0)
        batch = batch.repeat_rows() if r_drop else batch
        memory = self.encoder(*batch.source)
        loss = self.decoder_loss(batch, memory, label_smoothing, r_drop)
        if self.ctc_head is None or not self.training:
            return loss
        ctc = ctc_batch_loss(self.ctc_head, memory, batch).smoothed / (2 if r_drop else 1)
        return loss._replace(smoothed=self.ctc_weight * ctc + (1 - self.ctc_weight) * loss.smoothed)

    def decoder_loss(self, batch: Batch, memory: Memory, label_smoothing: float, r_drop: float) -> Loss:
        """The loss of the decoder alone."""
        if isinstance(self.decoder, CTCDecoder):
            return ctc_batch_loss(self.decoder, memory, batch)
        if isinstance(self.decoder, LabelDecoder):
            return label_loss(self.decoder, memory, batch, label_smoothing)
        if self.word_dropout and self.training:
            batch = replace(batch, inputs=hide_words(batch.inputs, self.word_dropout, self.unknown_word))
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


def hide_words(inputs: Tensor, share: float, unknown: int) -> Tensor:
    """Word dropout (Bowman et al. 2016): a random share of the words that the decoder reads become the unknown word.

    The start token, in the first column of inputs [B, T], stays.
    """
    hidden = torch.rand(inputs.shape, device=inputs.device) < share
    hidden[:, 0] = False
    return inputs.masked_fill(hidden, unknown)


def output_projection(decoder: Decoder) -> Callable[[Tensor], Tensor]:
    """The function from states to logits: the decoder's `plain_projection` if it has one, otherwise its `project`.

    A decoder has `plain_projection` if its `project` only applies that `nn.Linear`. The loss can then compute the
    gradient itself, and a search can write logits into a preallocated buffer.
    """
    projection = getattr(decoder, "plain_projection", None)
    return projection if type(projection) is nn.Linear else decoder.project
