"""The recurrent cells, as PyTorch computes them (x_t is the input of step t).

    rnn    h_t = tanh(W x_t + U h_{t-1} + b)
    lstm   i, f, o = sigmoid(..), g = tanh(..) of W x_t + U h_{t-1} + b
           c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
    gru    r, z = sigmoid(..),  n = tanh(W x_t + b + r * (U h_{t-1} + b'))
           h_t = (1 - z) * n + z * h_{t-1}

There are three GRU conventions in the literature; this is cuDNN's: z *keeps* the old state, and the reset gate is
applied after the product U h, which therefore does not depend on r. Cho et al. and Bahdanau et al. reset before the
product, and in Bahdanau et al. z is the weight of the *new* state. Trained from scratch they are equally good, but
weights trained with one convention do not work with another.
"""

from torch import nn

CELLS: dict[str, type[nn.RNN | nn.LSTM | nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
