"""The recurrent cells, as PyTorch's engine computes them (x_t enters step t).

    rnn    h_t = tanh(W x_t + U h_{t-1} + b)
    lstm   i, f, o = sigmoid(..), g = tanh(..) of W x_t + U h_{t-1} + b
           c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
    gru    r, z = sigmoid(..),  n = tanh(W x_t + b + r * (U h_{t-1} + b'))
           h_t = (1 - z) * n + z * h_{t-1}

Of the three GRU conventions in the literature this is the one of cuDNN: z *keeps* the old state, and the reset gate
acts after the product U h, so that the recurrent product does not wait for r. Cho et al. and Bahdanau et al. reset
before it, and the latter's z lets the *new* state in; trained from scratch they are equally good, with somebody
else's weights they are not the same function.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CELLS: dict[str, type[nn.RNN | nn.LSTM | nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}

_ONCE: dict[str, Callable[..., Any]] = {"RNN_TANH": torch.rnn_tanh_cell, "LSTM": torch.lstm_cell, "GRU": torch.gru_cell}


def one_step(
    rnn: nn.RNNBase, inputs: Tensor, hidden: Tensor, cell: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What `rnn` says to a sequence of length one: inputs [B, D], states [B, layers, D].

    On a CPU PyTorch hands LSTM sequences to oneDNN, which packs the weights anew for each: for a single step that costs
    half as much again as the cell itself.
    """
    answers, memories = [], []
    for layer, weights in enumerate(rnn.all_weights):
        if layer:
            inputs = F.dropout(inputs, rnn.dropout, rnn.training)
        if cell is None:
            inputs = _ONCE[rnn.mode](inputs, hidden[:, layer], *weights)
        else:
            inputs, memory = _ONCE[rnn.mode](inputs, (hidden[:, layer], cell[:, layer]), *weights)
            memories.append(memory)
        answers.append(inputs)
    return inputs, torch.stack(answers, 1), torch.stack(memories, 1) if memories else None
