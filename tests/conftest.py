import signal

import torch

# A shell makes a job in the background deaf to Ctrl-C, and with it all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The tensors of tests are small: a second thread gains nothing, and loses much when another process is busy.
torch.set_num_threads(1)
