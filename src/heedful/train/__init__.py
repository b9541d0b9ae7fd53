"""Training: from a heedful.toml to a model directory.

    import heedful
    heedful.train("heedful.toml")

The act and the package share a name, so the package itself may be called; its parts are imported as of any other.
"""

import sys
from types import ModuleType
from typing import Any


class _Act(ModuleType):
    def __call__(self, *given: Any, **named: Any) -> Any:
        from heedful.train.loop import train

        return train(*given, **named)


sys.modules[__name__].__class__ = _Act
