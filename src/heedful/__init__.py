"""Heedful: sequence-to-sequence learning with attention. Train, inspect, export and serve a translator."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from heedful.errors import HeedfulError
from heedful.types import Hypothesis, Translation

if TYPE_CHECKING:
    from heedful.corpus.check import check
    from heedful.data.prepare import prepare
    from heedful.engines.base import SamplingOptions
    from heedful.exporters.api import export
    from heedful.importers.api import import_model
    from heedful.inspection.api import inspect
    from heedful.scaffold import init
    from heedful.training.api import train
    from heedful.translation.calibrate import calibrate
    from heedful.translation.evaluation import compare, evaluate
    from heedful.translation.loading import load
    from heedful.translation.translator import Translator

__version__ = "0.1.0.dev0"

__all__ = [
    "HeedfulError", "Hypothesis", "SamplingOptions", "Translation", "Translator", "__version__",
    "calibrate", "check", "compare", "evaluate", "export", "import_model", "init", "inspect", "load", "prepare",
    "train",
]  # fmt: skip

_LAZY_MODULES = {  # imported on first use; the imports above tell type checkers and editors the same
    "SamplingOptions": "heedful.engines.base",
    "Translator": "heedful.translation.translator",
    "calibrate": "heedful.translation.calibrate",
    "check": "heedful.corpus.check",
    "compare": "heedful.translation.evaluation",
    "evaluate": "heedful.translation.evaluation",
    "export": "heedful.exporters.api",
    "import_model": "heedful.importers.api",
    "init": "heedful.scaffold",
    "inspect": "heedful.inspection.api",
    "load": "heedful.translation.loading",
    "prepare": "heedful.data.prepare",
    "train": "heedful.training.api",
}


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LAZY_MODULES:
            raise AttributeError(  # from `name` and `obj`, Python suggests the most similar name
                f"module 'heedful' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        return getattr(import_module(_LAZY_MODULES[name]), name)
