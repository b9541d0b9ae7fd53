"""Ctrl-C, SIGTERM and SIGUSR1 ask for an end; the step under way is finished and saved. A second one ends at once.

Nothing relies on it: a run that is killed without a word loses what came after its last checkpoint, and nothing else.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What the process ends with. Schedulers start a job anew that ends with 75 (temporary failure).
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGUSR1": 75}


class Wish:
    """Whether someone asked to end, and the exit code that answers."""

    code = 0

    def take(self, number: int, _frame: FrameType | None) -> None:
        """The first asks, the second does not wait."""
        code = CODES[signal.Signals(number).name]
        if self.code:
            os._exit(self.code)
        self.code = code


@contextmanager
def heard() -> Iterator[Wish]:
    """Listen while it lasts; only the main thread can."""
    wish = Wish()
    known = [getattr(signal, name) for name in CODES if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.take) for number in known}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
