import torch

# The tensors of tests are small: a second thread gains nothing, and loses much when another process is busy.
torch.set_num_threads(1)
