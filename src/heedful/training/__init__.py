"""Training: from a heedful.toml to a model directory.

import heedful
heedful.train("heedful.toml")
"""
