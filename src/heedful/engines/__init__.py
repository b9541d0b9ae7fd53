"""Engines: what computes. All have one face, and know tokens only; text is the translator's."""
