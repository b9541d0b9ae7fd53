"""Exports: other people's formats, each with a proof that it says the same.

import heedful
heedful.export("my-model", "my-model-ct2", to="ctranslate2", rounding="int8")
"""

from heedful.acts import may_be_called

may_be_called(__name__, "heedful.export.act")
