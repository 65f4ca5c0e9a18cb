"""Data sets by name, each with the reader of its format: only the registry and `turnout.data` import this folder."""
