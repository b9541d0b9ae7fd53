"""Ctrl-C, SIGTERM and SIGUSR1 request a stop: the current step is finished and saved. A second one exits immediately.

A run that is killed without such a signal loses only the steps after its last checkpoint.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Exit code of the process. Schedulers restart a job that exits with 75 (temporary failure).
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGUSR1": 75}


class StopRequest:
    """The exit code of the signal that requested a stop; 0 if there was none."""

    exit_code = 0

    def handle_signal(self, number: int, _frame: FrameType | None) -> None:
        """Record the first signal; exit at the second."""
        code = EXIT_CODES[signal.Signals(number).name]
        if self.exit_code:
            os._exit(self.exit_code)
        self.exit_code = code


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Turn signals into a stop request; has no effect outside the main thread."""
    stop_request = StopRequest()
    known = [getattr(signal, name) for name in EXIT_CODES if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield stop_request
        return
    previous = {number: signal.signal(number, stop_request.handle_signal) for number in known}
    try:
        yield stop_request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
