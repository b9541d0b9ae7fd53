"""Search: from a decoder's distributions to the best sequences, knowing nothing of the model.

Each search is a frozen set of options that is called with a decoder, a memory and the `Rules`:

    Beam(size=5)(decoder, memory, Rules(bos=1, eos=2, limit=50)) -> [Found, ...]   one per sentence
"""

from heedful.errors import require

require("torch", extra="train", whose="heedful.search")

from heedful.search.beam import Beam  # noqa: E402  # after the message that says how to install torch
from heedful.search.decoding import Rules  # noqa: E402
from heedful.search.filters import FILTERS, Filter  # noqa: E402
from heedful.search.generate import Greedy, Sample  # noqa: E402
from heedful.stopping import LENGTHS, STOPPINGS  # noqa: E402

SEARCHES = {"greedy": Greedy, "sample": Sample, "beam": Beam}

__all__ = ["FILTERS", "LENGTHS", "SEARCHES", "STOPPINGS", "Beam", "Filter", "Greedy", "Rules", "Sample"]
