"""`python -m heedful` is `heedful`."""

from heedful.cli import main

if __name__ == "__main__":  # a worker process imports this file too, and must not run the command again
    main()
