"""Exports to the formats of other engines, each with a proof that it computes the same.

import heedful
heedful.export("my-model", "my-model-ct2", to="ctranslate2", quantization="int8")
"""
