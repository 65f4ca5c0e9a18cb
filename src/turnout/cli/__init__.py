"""The command line: ``turnout run | compare | report | list | data``."""

from turnout.cli.app import app


def main() -> None:
    """Run the command line."""
    app()


__all__ = ["app", "main"]
