"""Inspect a model: one page with attention, search and probabilities of sentences.

import heedful
heedful.inspect("my-model", "Good morning").save("inspect.html")
"""
