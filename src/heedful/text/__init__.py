"""Normalize, segment and tokenize text."""
