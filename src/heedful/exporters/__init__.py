"""Exports to the formats of other engines, each verified against the model.

import heedful
heedful.export("my-model", "my-model-ct2", to="ctranslate2", quantization="int8")
"""
