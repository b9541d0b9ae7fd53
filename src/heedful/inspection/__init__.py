"""Inspect a model: one page that shows attention, search and probabilities for a sentence.

import heedful
heedful.inspect("my-model", "Good morning").save("inspect.html")
"""
