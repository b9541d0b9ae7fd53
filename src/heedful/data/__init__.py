"""Prepared data: from corpora to tokens to batches."""
