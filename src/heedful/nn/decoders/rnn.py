"""Recurrent decoders: Bahdanau's and Luong's, and the plain one without attention."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from heedful.nn.attention import Attended, Attention, MultiHead, Source
from heedful.nn.cells import CELLS, one_step
from heedful.nn.contract import Decoded, Glance, Look, Map, Maps, Memory, State, glance
from heedful.nn.dropout import Dropout
from heedful.nn.layers import Embed

ASKS = ("previous", "current")
FIRSTS: dict[str, Callable[[Memory], Tensor]] = {
    "mean": Memory.mean,
    "last": Memory.last,
    "zero": lambda memory: torch.zeros_like(memory.states[:, 0]),  # with a bridge: learned, and the same for all
}


class _Past(NamedTuple):
    hidden: Tensor  # [B, layers, D]
    cell: Tensor | None  # [B, layers, D], of an LSTM
    feed: Tensor | None  # [B, E] the last readout, with input feeding
    weights: Tensor | None  # the last attention weights, for scores that recall them


class RecurrentDecoder(nn.Module):
    """y_{t-1} is the token before, e its embedding, c_t the context, z_t the recurrent state.

    asks="previous" (Bahdanau)         asks="current" (Luong)
      c_t = attend(z_{t-1})              z_t = RNN([e; fed], z_{t-1})
      z_t = RNN([e; c_t; fed], z_{t-1})  c_t = attend(z_t)
      o_t = tanh(W [z_t; c_t; e])        o_t = tanh(W [z_t; c_t])

    With input feeding, fed = o_{t-1}. The first state is tanh(B m) with a bridge, or m as it is, m being the mean or
    the last of the memory (or zero); an LSTM's cell starts at zero without a bridge. Without attention c_t is left out,
    and then one can do without a readout as well: o_t = z_t.
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
        layers: int = 1,
        asks: str = "current",
        feeds: bool = False,
        first: str = "mean",
        bridge: bool = True,
        readout: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if asks not in ASKS:
            raise ValueError(f"asks {asks!r} is unknown; choose from {', '.join(ASKS)}")
        if first not in FIRSTS:
            raise ValueError(f"first {first!r} is unknown; choose from {', '.join(FIRSTS)}")
        if not bridge and first != "zero" and memory_width != width:
            raise ValueError(f"a memory of width {memory_width} cannot start a state of width {width} without a bridge")
        if not readout and (attention is not None or width != embed.width):
            raise ValueError("without a readout the output reads the state itself: no attention, and width as outside")
        self.embed, self.plain_projection, self.attention = embed, output, attention
        self.width, self.layers, self.feeds = width, layers, feeds
        self.first = FIRSTS[first]
        self.lstm = cell == "lstm"
        self.asks_before = asks == "previous" and attention is not None
        context = 0 if attention is None else attention.width
        inputs = embed.width + (context if self.asks_before else 0) + (embed.width if feeds else 0)
        self.rnn = CELLS[cell](inputs, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.bridge = nn.Linear(memory_width, (2 if self.lstm else 1) * layers * width) if bridge else None
        read = width + context + (embed.width if self.asks_before else 0)
        self.readout = nn.Linear(read, embed.width) if readout else None
        self.dropout = Dropout(dropout)
        # Without any loop through the attention, the engine can run over all steps at once.
        self.unrolled = not (self.asks_before or feeds or (attention is not None and attention.recalls))

    def start(self, memory: Memory) -> State:
        """Prepared keys and values, and the first state."""
        rows, slots = memory.mask.shape
        hidden = self.first(memory)
        cell: Tensor | None = None
        if self.bridge is not None:
            hidden = torch.tanh(self.bridge(hidden)).unflatten(-1, (-1, self.layers, self.width))  # [B, 1 or 2, L, D]
            hidden, cell = (hidden[:, 0], hidden[:, 1]) if self.lstm else (hidden[:, 0], None)
        else:
            if hidden.size(-1) != self.width:  # only zeros may be of another width
                hidden = hidden.new_zeros(rows, self.width)
            hidden = hidden.unsqueeze(1).expand(-1, self.layers, -1)
            cell = torch.zeros_like(hidden) if self.lstm else None
        feed = hidden.new_zeros(rows, self.embed.width) if self.feeds else None
        weights: Tensor | None = None
        if self.attention is not None and self.attention.recalls:
            several = (self.attention.heads,) if isinstance(self.attention, MultiHead) else ()
            weights = hidden.new_zeros(rows, *several, 1, slots)
        prepared = None if self.attention is None else self.attention.prepare(memory)
        return State(prepared, _Past(hidden, cell, feed, weights), shared=True)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """[B, T] -> states [B, T, E], and the state after the last token"""
        if look is not None:
            look.check("decoder", 0)
            look.check("cross", 0 if self.attention is None else 1)
        words = self.embed(tokens)
        seen = glance(look, "cross", 0)
        run = self._all_at_once if self.unrolled else self._step_by_step
        states, past, found = run(words, state.source, state.past, seen)
        maps = None
        if seen is not None and seen.record:
            maps = Maps(cross=() if found is None else (found,))
        return Decoded(states, maps), replace(state, past=past)

    def project(self, states: Tensor) -> Tensor:
        """[..., E] -> [..., V]"""
        return self.plain_projection(states)  # type: ignore[no-any-return]

    def _all_at_once(
        self, words: Tensor, source: Source | None, past: _Past, seen: Glance | None
    ) -> tuple[Tensor, _Past, Map | None]:
        answers, hidden, cell = self._recur(words, past)
        parts, found = [answers], None
        if self.attention is not None:
            context, _, found = self._ask(answers, source, None, seen)
            parts.append(context)
        return self._read(torch.cat(parts, -1)), past._replace(hidden=hidden, cell=cell), found

    def _step_by_step(
        self, words: Tensor, source: Source | None, past: _Past, seen: Glance | None
    ) -> tuple[Tensor, _Past, Map | None]:
        steps, maps = [], []
        for word in words.split(1, 1):  # [B, 1, E]
            fed = [] if past.feed is None else [past.feed.unsqueeze(1)]
            if self.asks_before:
                context, weights, found = self._ask(past.hidden[:, -1:], source, past.weights, seen)
                answer, hidden, cell = self._recur(torch.cat([word, context, *fed], -1), past)
                parts = [answer, context, word]
            else:
                answer, hidden, cell = self._recur(torch.cat([word, *fed], -1), past)
                parts, weights, found = [answer], None, None
                if self.attention is not None:
                    context, weights, found = self._ask(answer, source, past.weights, seen)
                    parts.append(context)
            joined = torch.cat(parts, -1)
            if self.feeds:  # the next step needs it; else all steps are read at once
                joined = self._read(joined)
            past = _Past(hidden, cell, joined.squeeze(1) if self.feeds else None, weights)
            steps.append(joined)
            maps.append(found)
        every = torch.cat(steps, 1)
        return every if self.feeds else self._read(every), past, join_steps(maps)

    def _recur(self, inputs: Tensor, past: _Past) -> tuple[Tensor, Tensor, Tensor | None]:
        if inputs.size(1) == 1:
            answer, hidden, cell = one_step(self.rnn, inputs.squeeze(1), past.hidden, past.cell)
            return answer.unsqueeze(1), hidden, cell
        hidden = past.hidden.transpose(0, 1).contiguous()  # the engine wants [layers, B, D]
        if past.cell is not None:
            answers, (hidden, cell) = self.rnn(inputs, (hidden, past.cell.transpose(0, 1).contiguous()))
            return answers, hidden.transpose(0, 1), cell.transpose(0, 1)
        answers, hidden = self.rnn(inputs, hidden)
        return answers, hidden.transpose(0, 1), None

    def _ask(self, query: Tensor, source: Source | None, weights: Tensor | None, seen: Glance | None) -> Attended:
        assert self.attention is not None
        assert source is not None
        return self.attention(query, source, weights, seen)

    def _read(self, joined: Tensor) -> Tensor:
        return self.dropout(joined if self.readout is None else torch.tanh(self.readout(joined)))

    if TYPE_CHECKING:
        __call__ = forward


def join_steps(maps: list[Map | None]) -> Map | None:
    """One map of T steps from T maps of one step; keys and values are the same at every step."""
    first = maps[0]
    if first is None:
        return None
    steps = [found for found in maps if found is not None]

    def joined(parts: list[Tensor | None]) -> Tensor | None:
        return None if parts[0] is None else torch.cat([part for part in parts if part is not None], 2)

    return Map(
        joined([found.weights for found in steps]),
        joined([found.scores for found in steps]),
        joined([found.queries for found in steps]),
        first.keys,
        first.values,
    )
