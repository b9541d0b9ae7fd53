"""Text in, translations out: `translator` for texts (`heedful.load` opens one), `bulk` for files of any size."""
