"""Keep freed memory in the process.

By default glibc returns large blocks to the system and requests them again, thousands of times per step. The system
clears the pages each time, which takes a third of a training step on a CPU.
"""

import ctypes
import sys

from heedful import performance

MALLOPT = {-4: 0, -1: -1, -2: 1 << 28}  # M_MMAP_MAX, M_TRIM_THRESHOLD (-1: never), M_TOP_PAD


def keep_freed_memory() -> bool:
    """Configure glibc to keep freed memory for this process; return whether that succeeded."""
    if not performance.enabled() or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return sum(int(mallopt(parameter, value)) for parameter, value in MALLOPT.items()) == len(MALLOPT)
