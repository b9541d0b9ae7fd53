"""Heedful: sequence-to-sequence learning with attention.

From sentence pairs to a translator that one can train, trust, look inside and serve.
"""

from heedful.errors import HeedfulError
from heedful.types import Hypothesis

__version__ = "0.1.0.dev0"

__all__ = ["HeedfulError", "Hypothesis", "__version__"]
