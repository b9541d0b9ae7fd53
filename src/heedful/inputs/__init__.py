"""Kinds of sources besides text: how they are read, stored and shown. No torch."""
