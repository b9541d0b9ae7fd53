"""Other toolkits, trained on the same sentences: `install` creates their environments, `run` measures them."""
