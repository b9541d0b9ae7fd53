"""The lab: experiments that test the claims of the lectures, each with one command (heedful lab X1).

An experiment trains or loads small models, and returns a table with intervals, a chart and checks, from which the
verdict follows. `heedful.lab.experiments` has those that come with heedful; a file of your own can be run by its path.
"""

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import (
    Chart,
    Check,
    Estimate,
    Findings,
    ResultTable,
    Series,
    estimate_mean,
    estimate_share,
)

__all__ = [
    "Chart",
    "Check",
    "Estimate",
    "Experiment",
    "Findings",
    "Lab",
    "ResultTable",
    "Series",
    "estimate_mean",
    "estimate_share",
]
