"""Look inside: a model and a sentence become one page that shows attention, search and probabilities.

import heedful
heedful.inspect("my-model", "Good morning").save("inspect.html")
"""

from heedful.acts import may_be_called

may_be_called(__name__, "heedful.inspect.act")
