"""The recurrent cells, as PyTorch computes them (x_t is the input of step t).

    rnn    h_t = tanh(W x_t + U h_{t-1} + b)
    lstm   i, f, o = sigmoid(..), g = tanh(..) of W x_t + U h_{t-1} + b
           c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
    gru    r, z = sigmoid(..),  n = tanh(W x_t + b + r * (U h_{t-1} + b'))
           h_t = (1 - z) * n + z * h_{t-1}

There are three GRU conventions in the literature; this is cuDNN's: z *keeps* the old state, and the reset gate is
applied after the product U h, which therefore does not depend on r. Cho et al. and Bahdanau et al. reset before the
product, and in Bahdanau et al. z is the weight of the *new* state. Trained from scratch they are equally good, but
weights trained with one convention do not work with another. `reset = "before"` selects Cho's:

           n = tanh(W x_t + b + U (r * h_{t-1}) + b')
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CELLS: dict[str, type[nn.RNN | nn.LSTM | nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class ResetBeforeGRU(nn.GRU):
    """A GRU that resets the state before the product with U; with the weights of `nn.GRU`, and `batch_first`."""

    def forward(self, inputs: Tensor, hidden: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """[B, T, D], [layers, B, D] -> [B, T, D], [layers, B, D]; a loop over steps, slower than PyTorch's kernels"""
        last = []
        for layer, weights in enumerate(self.all_weights):
            if layer:
                inputs = F.dropout(inputs, self.dropout, self.training)
            state = inputs.new_zeros(inputs.size(0), self.hidden_size) if hidden is None else hidden[layer]
            states = []
            for x in inputs.unbind(1):
                state = self.step(x, state, *weights)
                states.append(state)
            inputs = torch.stack(states, 1)
            last.append(state)
        return inputs, torch.stack(last)

    @staticmethod
    def step(x: Tensor, hidden: Tensor, w: Tensor, u: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """h_t from x_t and h_{t-1}, as in the docstring of the module"""
        size = hidden.size(1)
        from_input = F.linear(x, w, b)
        from_state = F.linear(hidden, u[: 2 * size], c[: 2 * size])
        r, z = torch.sigmoid(from_input[:, : 2 * size] + from_state).chunk(2, 1)
        n = torch.tanh(from_input[:, 2 * size :] + F.linear(r * hidden, u[2 * size :], c[2 * size :]))
        return (1 - z) * n + z * hidden

    if TYPE_CHECKING:
        __call__ = forward


RESETS = ("after", "before")


def make_rnn(
    cell: str, reset: str, input_width: int, width: int, layers: int = 1, *, dropout: float = 0.0
) -> nn.RNNBase:
    """A recurrent network of this cell, batch first; `reset` is for GRUs."""
    if reset not in RESETS:
        raise ValueError(f"reset {reset!r} is unknown; choose from {', '.join(RESETS)}")
    if reset == "before" and cell != "gru":
        raise ValueError(f"reset = 'before' is for a GRU, but the cell is {cell!r}")
    kind = ResetBeforeGRU if reset == "before" else CELLS[cell]
    return kind(input_width, width, layers, batch_first=True, dropout=dropout)
