"""Look inside: a model and a sentence become one page that shows attention, search and probabilities.

    import heedful
    heedful.inspect("my-model", "Good morning").save("inspect.html")

The act and the package share a name, so the package itself may be called; its parts are imported as of any other.
"""

import sys
from types import ModuleType
from typing import Any


class _Act(ModuleType):
    def __call__(self, *given: Any, **named: Any) -> Any:
        from heedful.inspect.act import inspect

        return inspect(*given, **named)


sys.modules[__name__].__class__ = _Act
