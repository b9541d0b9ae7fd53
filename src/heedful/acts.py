"""Packages that can be called: an act and the package of its parts share a name.

    may_be_called(__name__, "heedful.train.loop")        # in train/__init__.py

makes `heedful.train(...)` train, and leaves `heedful.train.loop` what it is.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def may_be_called(package: str, module: str) -> None:
    """Calling `package` calls what `module` has under the package's last name; it is imported when first called."""

    class Act(ModuleType):
        def __call__(self, *given: Any, **named: Any) -> Any:
            return getattr(import_module(module), package.rpartition(".")[2])(*given, **named)

    sys.modules[package].__class__ = Act
