"""Exports: other people's formats, each with a proof that it says the same.

import heedful
heedful.export("my-model", "my-model-ct2", to="ctranslate2", rounding="int8")
"""
