"""Other toolkits, trained on the same sentences: `install` makes their environments, `run` measures them."""
