"""Engines (PyTorch, CTranslate2, ONNX Runtime, Hugging Face) map tokens to hypotheses; their protocol is in `base`."""
