"""Greedy search, sampling and beam search for any decoder; best path and prefix beam search for CTC.

Each search is a frozen dataclass of options. Call it with a decoder, a memory and `DecodingLimits`:

    Beam(size=5)(decoder, memory, DecodingLimits(bos=1, eos=2, max_length=50)) -> [SearchResult, ...]   one per sentence

Modules that need torch are imported on first use, because `stopping` and `hypotheses` also work without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heedful.errors import require
from heedful.search.stopping import LENGTH_RULES, STOPPING_RULES

if TYPE_CHECKING:
    from heedful.search.beam import SEARCHES, Beam
    from heedful.search.ctc import BestPath, PrefixBeam
    from heedful.search.decoding import DecodingLimits
    from heedful.search.filters import FILTERS, Filter
    from heedful.search.generation import Greedy, Sample

__all__ = [
    "FILTERS",
    "LENGTH_RULES",
    "SEARCHES",
    "STOPPING_RULES",
    "Beam",
    "BestPath",
    "DecodingLimits",
    "Filter",
    "Greedy",
    "PrefixBeam",
    "Sample",
]

TORCH_MODULES = {
    "Beam": "beam",
    "BestPath": "ctc",
    "DecodingLimits": "decoding",
    "FILTERS": "filters",
    "Filter": "filters",
    "Greedy": "generation",
    "PrefixBeam": "ctc",
    "SEARCHES": "beam",
    "Sample": "generation",
}


if not TYPE_CHECKING:  # type checkers see the imports above

    def __getattr__(name: str) -> Any:
        if name not in TORCH_MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        require("torch", extra="train", whose="heedful.search")
        return getattr(import_module(f"{__name__}.{TORCH_MODULES[name]}"), name)
