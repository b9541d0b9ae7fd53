"""The recurrent cells, as PyTorch computes them (x_t is the input of step t).

    rnn    h_t = tanh(W x_t + U h_{t-1} + b)
    lstm   i, f, o = sigmoid(..), g = tanh(..) of W x_t + U h_{t-1} + b
           c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
    gru    r, z = sigmoid(..),  n = tanh(W x_t + b + r * (U h_{t-1} + b'))
           h_t = (1 - z) * n + z * h_{t-1}

Of the three GRU conventions in the literature this is the one of cuDNN: z *keeps* the old state, and the reset gate
acts after the product U h, so that the recurrent product does not wait for r. Cho et al. and Bahdanau et al. reset
before it, and the latter's z lets the *new* state in. Trained from scratch they are equally good; with weights that
were trained elsewhere they are different functions.
"""

from torch import nn

CELLS: dict[str, type[nn.RNN | nn.LSTM | nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
