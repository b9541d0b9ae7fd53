"""Engines compute translations: PyTorch, CTranslate2, ONNX Runtime, Hugging Face, all behind the protocol of `base`.

An engine maps tokens to hypotheses; text is the translator's concern.
"""
