"""`python -m heedful` runs the command line."""

from heedful.cli import main

if __name__ == "__main__":  # worker processes import this file too
    main()
