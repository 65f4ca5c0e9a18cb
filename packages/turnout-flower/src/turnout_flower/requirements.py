"""Say how to install the packages that the adapter needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

INSTALL = "pip install . ./packages/turnout-serve ./packages/turnout-flower"


@contextmanager
def required() -> Iterator[None]:
    """Add the command that installs a missing package to the error of importing it.

    Raises:
        ModuleNotFoundError: if a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("", __package__):
            raise
        raise ModuleNotFoundError(
            f"turnout_flower needs {name}, which is not installed: {INSTALL} in a clone of turnout", name=error.name
        ) from error
