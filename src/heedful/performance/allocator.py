"""An allocator that keeps freed memory.

By default glibc returns large blocks to the system and requests them again, thousands of times per step, and each time
the system clears the pages: a third of the time of a training step on a CPU.
"""

import ctypes
import sys

from heedful import performance

MALLOPT = {-4: 0, -1: -1, -2: 1 << 28}  # M_MMAP_MAX, M_TRIM_THRESHOLD (-1: never), M_TOP_PAD


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep freed memory for this process; returns whether it did."""
    if not performance.enabled() or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return sum(int(mallopt(parameter, value)) for parameter, value in MALLOPT.items()) == len(MALLOPT)
