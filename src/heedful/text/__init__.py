"""Text to tokens and back: normalise, tokenise."""
