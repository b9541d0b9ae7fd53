"""Flags mark unusual inputs and faulty outputs, each with a documented name.

    output_flags("He paid $30.", "Er zahlte 13 Dollar.", tokens=5, source_tokens=5, statistics={})
    # (Flag(name="numbers", side="output", detail="Not in the output: 30.", figures={"lost": 1}),)

The checks find mechanical faults such as lost numbers, loops and truncated sentences; they do not judge whether a
translation is correct. They need neither a model nor a dictionary, and take about 50 microseconds per translation.
"""

from heedful.sentinel.checks import MEANINGS, flag_rates, input_flags, nested_value, output_flags, unknown_ids
from heedful.sentinel.languages import frequent_words
from heedful.types import Flag

__all__ = [
    "MEANINGS",
    "Flag",
    "flag_rates",
    "frequent_words",
    "input_flags",
    "nested_value",
    "output_flags",
    "unknown_ids",
]
