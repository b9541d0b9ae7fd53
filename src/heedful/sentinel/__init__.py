"""Alarms, not silence: what is odd about an input, what is wrong with an output, each by a name that is documented.

    output_flags("He paid $30.", "Er zahlte 13 Dollar.", tokens=5, source_tokens=5, statistics={})
    # (Flag(name="numbers", side="output", detail="Not in the output: 30."),)

Mechanical faults are found, such as lost numbers, loops and cut sentences; whether a translation is right is not
judged. Neither a model nor a dictionary is needed, and a look takes some 35 microseconds.
"""

from heedful.sentinel.alarms import MEANINGS, input_flags, inside, output_flags, unknown_ids, usual
from heedful.types import Flag

__all__ = ["MEANINGS", "Flag", "input_flags", "inside", "output_flags", "unknown_ids", "usual"]
