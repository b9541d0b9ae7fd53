"""Ensembles: p(y_t | y_<t, x) = mean over i of p_i(y_t | y_<t, x)

An ensemble implements the protocols of `nn.contract`, so searches, filters, prefixes and traces work with it.
"""

from collections.abc import Iterable, Sequence
from math import log
from typing import Any, cast

import torch
from torch import Tensor, nn

from heedful.errors import HeedfulError
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.contract import Decoded, Decoder, Encoder, Look, Maps, Memory, State, Tree
from heedful.nn.layers import promote_to_fp32


class EnsembleEncoder(nn.Module):
    """The encoders of all members; their memories are concatenated, so D is the sum of their widths."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.encoders: Iterable[Any] = nn.ModuleList(cast("Sequence[nn.Module]", encoders))
        self.width = sum(encoder.width for encoder in encoders)

    def forward(self, *source: Tensor, look: Look | None = None) -> Memory:
        """Run all encoders; `look` applies to the first."""
        memories: list[Memory] = [
            encoder(*source, look=None if number else look) for number, encoder in enumerate(self.encoders)
        ]
        first = memories[0]
        if any(memory.mask.shape != first.mask.shape for memory in memories):
            raise HeedfulError(
                "the models of an ensemble must return the same number of annotation vectors, but a model "
                "without attention returns only one: combine only models with attention, or only models "
                "without"
            )
        return Memory(torch.cat([memory.states for memory in memories], -1), first.mask, first.maps)


class EnsembleDecoder(nn.Module):
    """The decoders of all members: they read the same tokens, and the output is the mean of their probabilities.

    Its `states` are already log-probabilities, so D is the vocabulary size.
    """

    def __init__(self, decoders: Sequence[Decoder], memory_widths: Sequence[int]) -> None:
        super().__init__()
        self.decoders: Iterable[Any] = nn.ModuleList(cast("Sequence[nn.Module]", decoders))
        self.memory_widths = list(memory_widths)

    def start(self, memory: Memory) -> State:
        """Each decoder starts with its own part of the memory."""
        parts = memory.states.split(self.memory_widths, -1)
        states = [decoder.start(Memory(part, memory.mask)) for decoder, part in zip(self.decoders, parts, strict=True)]
        sources, pasts = tuple(state.source for state in states), tuple(state.past for state in states)
        return State(sources, pasts, shared=all(state.shared for state in states))

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """logsumexp_i log p_i - log n, the logarithm of the mean; `look` applies to the first decoder."""
        pasts, log_probs, maps = list[Tree](), list[Tensor](), list[Maps | None]()
        for decoder, source, past in zip(self.decoders, state.source, state.past, strict=True):
            decoded, after = decoder(tokens, State(source, past, state.shared), None if log_probs else look)
            log_probs.append(promote_to_fp32(decoder.project(decoded.states)).log_softmax(-1))
            pasts.append(after.past)
            maps.append(decoded.maps)
        mean = torch.stack(log_probs).logsumexp(0) - log(len(log_probs))
        return Decoded(mean, maps[0]), State(state.source, tuple(pasts), state.shared)

    def project(self, states: Tensor) -> Tensor:
        """The states, unchanged: they are already log-probabilities."""
        return states


def make_ensemble(models: Sequence[Seq2Seq]) -> Seq2Seq:
    """One model from several with the same vocabularies."""
    memory_widths = [model.encoder.width for model in models]
    decoder = EnsembleDecoder([model.decoder for model in models], memory_widths)
    return Seq2Seq(EnsembleEncoder([model.encoder for model in models]), decoder)
