"""Heedful: sequence-to-sequence learning with attention. Train, inspect, export and serve a translator."""

from importlib import import_module
from typing import Any

from heedful.errors import HeedfulError
from heedful.types import Hypothesis, Translation

__version__ = "0.1.0.dev0"

__all__ = [
    "HeedfulError", "Hypothesis", "Translation", "__version__",
    "calibrate", "check", "export", "import_model", "init", "inspect", "load", "prepare", "train",
]  # fmt: skip

_FUNCTION_MODULES = {  # imported on first use
    "calibrate": "heedful.translation.calibrate",
    "check": "heedful.corpus.check",
    "export": "heedful.exporters.api",
    "import_model": "heedful.importers.api",
    "init": "heedful.scaffold",
    "inspect": "heedful.inspection.api",
    "load": "heedful.translation.translator",
    "prepare": "heedful.data.prepare",
    "train": "heedful.training.api",
}


def __getattr__(name: str) -> Any:
    if name not in _FUNCTION_MODULES:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    return getattr(import_module(_FUNCTION_MODULES[name]), name)
