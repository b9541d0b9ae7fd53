"""Training: from a heedful.toml to a model directory.

import heedful
heedful.train("heedful.toml")
"""

from heedful.acts import may_be_called

may_be_called(__name__, "heedful.train.loop")
