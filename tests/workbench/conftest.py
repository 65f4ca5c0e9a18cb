"""The command line as the tests of the core call it."""

from tests.cli.conftest import small, turnout

__all__ = ["small", "turnout"]
