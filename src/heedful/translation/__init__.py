"""Text in, translations out: the translator, and files of any size."""
