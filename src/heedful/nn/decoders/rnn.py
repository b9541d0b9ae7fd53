"""Recurrent decoders: Bahdanau's, Luong's, and one without attention."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from heedful import performance
from heedful.nn.attention import Attended, Attention, MultiHead, PreparedSource, Sampled
from heedful.nn.cells import make_rnn
from heedful.nn.contract import Decoded, Glance, Look, Map, Maps, Memory, State, glance_if_any
from heedful.nn.dropout import Dropout
from heedful.nn.layers import Embed
from heedful.performance.recurrent_step import run_single_step

QUERY_FROM = ("previous", "current")
INITIAL_STATES: dict[str, Callable[[Memory], Tensor]] = {
    "mean": Memory.mean,
    "last": Memory.last,
    "zero": lambda memory: torch.zeros_like(memory.states[:, 0]),  # with a bridge: learned, the same for all sources
}


class _Past(NamedTuple):
    hidden: Tensor  # [B, layers, D]
    cell: Tensor | None  # [B, layers, D], of an LSTM
    readout: Tensor | None  # [B, E] the last readout, with input feeding
    score: Tensor | None  # the state of the score, if it has one


class RecurrentDecoder(nn.Module):
    """y_{t-1} is the previous token, e its embedding, c_t the context, z_t the recurrent state.

    query_from="previous" (Bahdanau)   query_from="current" (Luong)
      c_t = attend(z_{t-1})              z_t = RNN([e; fed], z_{t-1})
      z_t = RNN([e; c_t; fed], z_{t-1})  c_t = attend(z_t)
      o_t = tanh(W [z_t; c_t; e])        o_t = tanh(W [z_t; c_t])

    With input feeding, fed = o_{t-1}; otherwise it is left out. The initial state is tanh(B m) with a bridge and m
    without one, where m is the mean or the last vector of the memory (or zero); without a bridge, the cell of an LSTM
    starts at zero. Without attention c_t is left out, and then the readout can be left out as well: o_t = z_t. If the
    memory has width 0, there is no attention and no bridge, and the initial state is zero.

    With a gated context, c_t is multiplied by sigmoid(w . q_t + b), where q_t is the query (Xu et al. 2015): for words
    that follow from the words before, the decoder can ignore the source.
    """

    def __init__(
        self,
        embed: Embed,
        output: nn.Linear,
        width: int,
        memory_width: int,
        attention: Attention | MultiHead | None,
        *,
        cell: str = "lstm",
        reset: str = "after",
        layers: int = 1,
        query_from: str = "current",
        input_feeding: bool = False,
        initial_state: str = "mean",
        bridge: bool = True,
        readout: bool = True,
        gated_context: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if query_from not in QUERY_FROM:
            raise ValueError(f"query_from {query_from!r} is unknown; choose from {', '.join(QUERY_FROM)}")
        if initial_state not in INITIAL_STATES:
            raise ValueError(f"initial_state {initial_state!r} is unknown; choose from {', '.join(INITIAL_STATES)}")
        if embed.positions is not None:
            raise ValueError("a recurrent decoder reads tokens in order: build its embeddings without positions")
        if gated_context and attention is None:
            raise ValueError("gated_context needs attention, because it scales the context")
        if memory_width and not bridge and initial_state != "zero" and memory_width != width:
            raise ValueError(
                f"without a bridge, the memory (width {memory_width}) and the state (width {width}) must have "
                "the same width: set bridge=True or initial_state='zero'"
            )
        if not readout and (attention is not None or width != embed.width):
            raise ValueError(
                "without a readout, the output layer reads the state: remove the attention, and set the "
                f"width of the decoder to that of the embeddings, {embed.width}"
            )
        self.embed, self.plain_projection, self.attention = embed, output, attention
        self.width, self.layers, self.input_feeding = width, layers, input_feeding
        self.summarize_memory = INITIAL_STATES[initial_state if memory_width else "mean"]
        self.is_lstm = cell == "lstm"
        self.attends_first = query_from == "previous" and attention is not None
        context_width = 0 if attention is None else attention.width
        fed_width = embed.width if input_feeding else 0
        input_width = embed.width + (context_width if self.attends_first else 0) + fed_width
        self.rnn = make_rnn(cell, reset, input_width, width, layers, dropout=dropout if layers > 1 else 0.0)
        bridge_width = (2 if self.is_lstm else 1) * layers * width
        self.bridge = nn.Linear(memory_width, bridge_width) if bridge and memory_width else None
        readout_width = width + context_width + (embed.width if self.attends_first else 0)
        self.readout = nn.Linear(readout_width, embed.width) if readout else None
        self.gate = nn.Linear(width, 1) if gated_context else None
        self.dropout = Dropout(dropout)
        # If no step needs the attention of the step before, one RNN call runs all steps.
        has_state = attention is not None and attention.has_state
        self.runs_all_at_once = not (self.attends_first or input_feeding or has_state)
        normalizer = None if attention is None else attention.normalizer
        is_marginal = isinstance(normalizer, Sampled) and normalizer.estimator == "marginal"
        if is_marginal and gated_context:
            raise ValueError(
                "the estimator 'marginal' needs a context that only the readout reads: set no gated_context"
            )
        if is_marginal and not (self.runs_all_at_once and isinstance(attention, Attention)):
            raise ValueError(
                "the estimator 'marginal' needs a context that only the readout reads, of one head: set "
                "query_from='current', no input_feeding, no heads and a score without state, or another estimator"
            )

    def start(self, memory: Memory) -> State:
        """Prepared keys and values, and the initial state."""
        rows = memory.mask.size(0)
        hidden = self.summarize_memory(memory)
        cell: Tensor | None = None
        if self.bridge is not None:
            hidden = torch.tanh(self.bridge(hidden)).unflatten(-1, (-1, self.layers, self.width))  # [B, 1 or 2, L, D]
            hidden, cell = (hidden[:, 0], hidden[:, 1]) if self.is_lstm else (hidden[:, 0], None)
        else:
            if hidden.size(-1) != self.width:  # only zeros and a memory without slots may be of another width
                hidden = hidden.new_zeros(rows, self.width)
            hidden = hidden.unsqueeze(1).expand(-1, self.layers, -1)
            cell = torch.zeros_like(hidden) if self.is_lstm else None
        readout = hidden.new_zeros(rows, self.embed.width) if self.input_feeding else None
        prepared = None if self.attention is None else self.attention.prepare(memory)
        score = None if self.attention is None or prepared is None else self.attention.start_score(prepared)
        return State(prepared, _Past(hidden, cell, readout, score), shared=True)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """[B, T] -> states [B, T, E], and the state after the last token"""
        if look is not None:
            look.check_layers("decoder", 0)
            look.check_layers("cross", 0 if self.attention is None else 1)
        words = self.embed(tokens)
        glance = glance_if_any(look, "cross", 0)
        run = self._run_all_at_once if self.runs_all_at_once else self._run_step_by_step
        states, past, cross_map = run(words, state.source, state.past, glance)
        maps = None
        if glance is not None and glance.record:
            maps = Maps(cross=() if cross_map is None else (cross_map,))
        return Decoded(states, maps), replace(state, past=past)

    def project(self, states: Tensor) -> Tensor:
        """[..., E] -> [..., V]"""
        return self.plain_projection(states)  # type: ignore[no-any-return]

    def read_each_slot(self, tokens: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """o_t for the context v_i of every slot i, [B, T, S, E], and log p(s_t = i), [B, T, S]

        Only for decoders whose context is read by nothing but the readout.
        """
        outputs, _, _ = self._run_rnn(self.embed(tokens), state.past)
        recorded = self._attend(outputs, state.source, None, Glance(frozenset({"scores"}))).map
        assert recorded is not None
        assert recorded.scores is not None
        values = state.source.values
        steps, slots = outputs.size(1), values.size(1)
        pairs = (outputs.unsqueeze(2).expand(-1, -1, slots, -1), values.unsqueeze(1).expand(-1, steps, -1, -1))
        return self._read_out(torch.cat(pairs, -1)), recorded.scores[:, 0].log_softmax(-1)

    def _run_all_at_once(
        self, words: Tensor, source: PreparedSource | None, past: _Past, glance: Glance | None
    ) -> tuple[Tensor, _Past, Map | None]:
        outputs, hidden, cell = self._run_rnn(words, past)
        parts, cross_map = [outputs], None
        if self.attention is not None:
            context, _, cross_map = self._attend(outputs, source, None, glance)
            parts.append(context)
        return self._read_out(torch.cat(parts, -1)), past._replace(hidden=hidden, cell=cell), cross_map

    def _run_step_by_step(
        self, words: Tensor, source: PreparedSource | None, past: _Past, glance: Glance | None
    ) -> tuple[Tensor, _Past, Map | None]:
        steps, maps = [], []
        for word in words.split(1, 1):  # [B, 1, E]
            fed = [] if past.readout is None else [past.readout.unsqueeze(1)]
            if self.attends_first:
                context, score, cross_map = self._attend(past.hidden[:, -1:], source, past.score, glance)
                output, hidden, cell = self._run_rnn(torch.cat([word, context, *fed], -1), past)
                parts = [output, context, word]
            else:
                output, hidden, cell = self._run_rnn(torch.cat([word, *fed], -1), past)
                parts, score, cross_map = [output], None, None
                if self.attention is not None:
                    context, score, cross_map = self._attend(output, source, past.score, glance)
                    parts.append(context)
            step = torch.cat(parts, -1)
            if self.input_feeding:  # the next step needs the readout; otherwise one call computes all
                step = self._read_out(step)
            past = _Past(hidden, cell, step.squeeze(1) if self.input_feeding else None, score)
            steps.append(step)
            maps.append(cross_map)
        states = torch.cat(steps, 1)
        return states if self.input_feeding else self._read_out(states), past, join_steps(maps)

    def _run_rnn(self, inputs: Tensor, past: _Past) -> tuple[Tensor, Tensor, Tensor | None]:
        if inputs.size(1) == 1 and performance.enabled():
            output, hidden, cell = run_single_step(self.rnn, inputs.squeeze(1), past.hidden, past.cell)
            return output.unsqueeze(1), hidden, cell
        hidden = past.hidden.transpose(0, 1).contiguous()  # PyTorch's RNNs take [layers, B, D]
        if past.cell is not None:
            outputs, (hidden, cell) = self.rnn(inputs, (hidden, past.cell.transpose(0, 1).contiguous()))
            return outputs, hidden.transpose(0, 1), cell.transpose(0, 1)
        outputs, hidden = self.rnn(inputs, hidden)
        return outputs, hidden.transpose(0, 1), None

    def _attend(
        self, query: Tensor, source: PreparedSource | None, score: Tensor | None, glance: Glance | None
    ) -> Attended:
        assert self.attention is not None
        assert source is not None
        attended = self.attention(query, source, score, glance)
        if self.gate is None:
            return attended
        return attended._replace(context=attended.context * torch.sigmoid(self.gate(query)))

    def _read_out(self, x: Tensor) -> Tensor:
        return self.dropout(x if self.readout is None else torch.tanh(self.readout(x)))

    if TYPE_CHECKING:
        __call__ = forward


def join_steps(maps: Sequence[Map | None]) -> Map | None:
    """One map of T steps from T maps of one step; keys and values are the same at every step."""
    steps = [step_map for step_map in maps if step_map is not None]
    if not steps:
        return None

    def concatenate(parts: Sequence[Tensor | None]) -> Tensor | None:
        return None if parts[0] is None else torch.cat([part for part in parts if part is not None], 2)

    return Map(
        concatenate([step.weights for step in steps]),
        concatenate([step.scores for step in steps]),
        concatenate([step.queries for step in steps]),
        steps[0].keys,
        steps[0].values,
    )
