"""The command line: ``turnout run | compare | sweep | report | list | data``."""

from turnout.cli.app import app
from turnout.engine.allocator import keep_large_buffers


def main() -> None:
    """Run the command line."""
    keep_large_buffers()
    app()


__all__ = ["app", "main"]
