"""``python -m turnout``: the command line."""

from turnout.cli import main

if __name__ == "__main__":
    main()
