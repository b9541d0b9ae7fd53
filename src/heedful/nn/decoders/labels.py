"""The decoder of a classifier: a label for each source, or for each of its slots."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from heedful.nn.attention import Additive, Attention
from heedful.nn.contract import Decoded, Look, Map, Maps, Memory, State, glance_if_any
from heedful.nn.dropout import Dropout
from heedful.nn.layers import promote_to_fp32

NEVER = -1e4  # a log-probability that is zero as a probability. Not -inf, whose sums and differences can be NaN


class PooledSource(NamedTuple):
    """The vectors that labels are read from, one for each label, and what the attention looked at."""

    states: Tensor  # [B, L, D]; L = 1 if a source has one label
    num_labels: Tensor  # [B]
    memory: Memory


class AttentionPooling(nn.Module):
    """c = sum_s a_s h_s    a = softmax_s(v . tanh(W q + U h_s)) with a learned query q    (Yang et al. 2016)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(1, 1, width))
        self.attention = Attention(Additive(width, width), width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.query, std=self.query.size(-1) ** -0.5)

    def forward(self, memory: Memory, look: Look | None = None) -> tuple[Tensor, Map | None]:
        """Memory -> [B, D], and the map of one step if it was requested"""
        query = self.query.expand(len(memory.states), 1, -1)
        attended = self.attention(query, self.attention.prepare(memory), None, glance_if_any(look, "cross", 0))
        return attended.context.squeeze(1), attended.map

    if TYPE_CHECKING:
        __call__ = forward


# How a source becomes one vector without attention; "none" keeps all slots
POOLINGS: dict[str, Callable[[Memory], Tensor]] = {"mean": Memory.mean, "last": Memory.last}
POOLING_KINDS = ("attention", *POOLINGS, "none")


class LabelDecoder(nn.Module):
    """p(y | x) = softmax(O B c), with c the source as one vector (its mean, its last state, or by attention)

    With pooling "none", slot t has its own label: p(y_t | x) = softmax(O B h_t), as in tagging. Labels do not depend on
    each other. The linear layer B exists only if the encoder is not as wide as the output layer.

    As a `Decoder`, it emits the label, or one per slot, and then the end token with probability 1, so every search
    works with it; n-best lists have the n most probable labels. A slot may also emit the end token: where a source ends
    with an end token, it learns to. Ids in `special` are not labels.
    """

    label_ids: Tensor
    column_of_id: Tensor

    def __init__(
        self,
        output: nn.Linear,
        memory_width: int,
        *,
        pooling: str = "attention",
        dropout: float = 0.0,
        special: tuple[int, ...] = (0, 1, 2, 3),
        eos: int = 3,
    ) -> None:
        super().__init__()
        if pooling not in POOLING_KINDS:
            raise ValueError(f"pooling {pooling!r} is unknown; choose from {', '.join(POOLING_KINDS)}")
        self.output, self.pooling, self.eos = output, pooling, eos
        self.attention = AttentionPooling(memory_width) if pooling == "attention" else None
        width = output.in_features
        self.bridge = nn.Linear(memory_width, width) if memory_width != width else nn.Identity()
        self.dropout = Dropout(dropout)
        hidden = set(special) - ({eos} if self.is_per_slot else set())
        ids = torch.tensor([number for number in range(output.out_features) if number not in hidden])
        column_of_id = torch.full((output.out_features,), -1)
        column_of_id[ids] = torch.arange(len(ids))
        self.register_buffer("label_ids", ids, persistent=False)
        self.register_buffer("column_of_id", column_of_id, persistent=False)

    @property
    def is_per_slot(self) -> bool:
        """Whether every slot has a label."""
        return self.pooling == "none"

    def pool(self, memory: Memory, look: Look | None = None) -> tuple[Tensor, Map | None]:
        """The vectors that labels are read from, [B, L, D], and the map of the attention if it was requested."""
        weights = None
        if self.is_per_slot:
            states = memory.states
        elif self.attention is not None:
            context, weights = self.attention(memory, look)
            states = context.unsqueeze(1)
        else:
            states = POOLINGS[self.pooling](memory).unsqueeze(1)
        return self.dropout(self.bridge(states)), weights

    def label_logits(self, states: Tensor) -> Tensor:
        """[..., D] -> [..., K], a logit for every label; `label_ids` are their ids"""
        return self.output(states).index_select(-1, self.label_ids)  # type: ignore[no-any-return]

    def start(self, memory: Memory) -> State:
        """The pooled source, before the first label."""
        states, _ = self.pool(memory)
        num_labels = memory.mask.sum(1) if self.is_per_slot else torch.ones_like(memory.mask.sum(1))
        return State(PooledSource(states, num_labels, memory), torch.zeros_like(num_labels), shared=True)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """[B, T] -> [B, T, D + 1]: the vector of each label, and whether only the end token follows"""
        source, copies = state.source, len(tokens) // len(state.source.states)
        states, pooled_map = source.states, None
        if look is not None:
            look.check_layers("decoder", 0)
            look.check_layers("cross", 0 if self.attention is None else 1)
            if self.attention is not None:
                states, pooled_map = self.pool(source.memory, look)
        steps = state.past.unsqueeze(1) + torch.arange(tokens.size(1), device=tokens.device)  # [R, T]
        ended = steps >= source.num_labels.repeat_interleave(copies).unsqueeze(1)
        slots = steps.clamp(max=states.size(1) - 1).unsqueeze(-1).expand(-1, -1, states.size(-1))
        vectors = states.repeat_interleave(copies, 0).gather(1, slots).masked_fill(ended.unsqueeze(-1), 0.0)
        maps = None
        if look is not None and look.record:
            maps = Maps(cross=() if pooled_map is None else (repeat_map(pooled_map, copies, tokens.size(1)),))
        decoded = Decoded(torch.cat([vectors, ended.unsqueeze(-1).to(vectors)], -1), maps)
        return decoded, replace(state, past=state.past + tokens.size(1))

    def project(self, states: Tensor) -> Tensor:
        """[..., D + 1] -> logits [..., V]: those of the labels, or the end token alone"""
        logits = promote_to_fp32(self.label_logits(states[..., :-1]))
        ended = states[..., -1:] > 0.5
        everything = logits.new_full((*logits.shape[:-1], self.output.out_features), NEVER)
        everything = everything.index_copy(-1, self.label_ids, logits.masked_fill(ended, NEVER))
        end = everything[..., self.eos].masked_fill(ended.squeeze(-1), 0.0)
        return everything.index_copy(-1, torch.tensor([self.eos], device=logits.device), end.unsqueeze(-1))

    if TYPE_CHECKING:
        __call__ = forward


def repeat_map(pooled: Map, copies: int, steps: int) -> Map:
    """The map of a pooling, [B, H, 1, ...], for every row and step; its keys and values have no steps."""

    def repeat(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.repeat_interleave(copies, 0).repeat_interleave(steps, 2)

    def repeat_rows(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.repeat_interleave(copies, 0)

    return Map(
        repeat(pooled.weights),
        repeat(pooled.scores),
        repeat(pooled.queries),
        repeat_rows(pooled.keys),
        repeat_rows(pooled.values),
    )
