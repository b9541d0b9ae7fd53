"""p(y_t | y_<t, x) = mean over i of p_i(y_t | y_<t, x): several models that answer as one.

Its parts keep the contract, so that every search, filter, prefix and trace works with an ensemble as with one model.
"""

from collections.abc import Iterable, Sequence
from math import log
from typing import Any, cast

import torch
from torch import Tensor, nn

from heedful.errors import HeedfulError
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.contract import Decoded, Decoder, Encoder, Look, Maps, Memory, State, Tree
from heedful.nn.layers import precise


class Readers(nn.Module):
    """The encoders of all members; their memories stand side by side, D is the sum of their widths."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.encoders: Iterable[Any] = nn.ModuleList(cast("Sequence[nn.Module]", encoders))
        self.width = sum(encoder.width for encoder in encoders)

    def forward(self, *source: Tensor, look: Look | None = None) -> Memory:
        """Each reads the source; one looks into the first."""
        each: list[Memory] = [
            encoder(*source, look=None if number else look) for number, encoder in enumerate(self.encoders)
        ]
        if any(one.mask.shape != each[0].mask.shape for one in each):
            raise HeedfulError(
                "an ensemble needs models with as many annotations: one without attention hands over a single vector"
            )
        return Memory(torch.cat([one.states for one in each], -1), each[0].mask, each[0].maps)


class Writers(nn.Module):
    """The decoders of all members: each reads what was said, and what comes next all of them decide.

    Its `states` are log-probabilities already, and D is the size of the vocabulary.
    """

    def __init__(self, decoders: Sequence[Decoder], widths: Sequence[int]) -> None:
        super().__init__()
        self.decoders: Iterable[Any] = nn.ModuleList(cast("Sequence[nn.Module]", decoders))
        self.widths = list(widths)  # of the members' memories

    def start(self, memory: Memory) -> State:
        """Each with its own part of the memory."""
        parts = memory.states.split(self.widths, -1)
        each = [decoder.start(Memory(part, memory.mask)) for decoder, part in zip(self.decoders, parts, strict=True)]
        sources, pasts = tuple(one.source for one in each), tuple(one.past for one in each)
        return State(sources, pasts, shared=all(one.shared for one in each))

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """logsumexp_i log p_i - log n, the logarithm of the mean; one looks into the first."""
        pasts, every, maps = list[Tree](), list[Tensor](), list[Maps | None]()
        for decoder, source, past in zip(self.decoders, state.source, state.past, strict=True):
            decoded, after = decoder(tokens, State(source, past, state.shared), None if every else look)
            every.append(precise(decoder.project(decoded.states)).log_softmax(-1))
            pasts.append(after.past)
            maps.append(decoded.maps)
        mean = torch.stack(every).logsumexp(0) - log(len(every))
        return Decoded(mean, maps[0]), State(state.source, tuple(pasts), state.shared)

    def project(self, states: Tensor) -> Tensor:
        """They are what they should be."""
        return states


def ensemble(models: Sequence[Seq2Seq]) -> Seq2Seq:
    """Models of one vocabulary as one model."""
    encoders = [model.encoder for model in models]
    return Seq2Seq(Readers(encoders), Writers([model.decoder for model in models], [one.width for one in encoders]))
