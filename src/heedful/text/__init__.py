"""Text to tokens and back: normalize, tokenize."""
