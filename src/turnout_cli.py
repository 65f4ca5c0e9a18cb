"""The command ``turnout``. It is outside the package, whose import takes time in which Ctrl-C is already a way to end."""

from __future__ import annotations

from turnout_interrupt import leaving_at_once


def main() -> None:
    """Import the command line and run it; Ctrl-C before it is there ends with one line and exit code 130."""
    with leaving_at_once():
        from turnout.cli import main as run

    run()
