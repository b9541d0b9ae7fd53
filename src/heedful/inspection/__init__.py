"""Look inside: a model and a sentence become one page that shows attention, search and probabilities.

import heedful
heedful.inspect("my-model", "Good morning").save("inspect.html")
"""
