"""Translate texts (`translator`; `heedful.load` opens one) and files of any size (`bulk`)."""
