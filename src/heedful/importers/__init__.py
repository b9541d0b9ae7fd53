"""Imports: what others trained, as a model directory."""
