"""Packages that only some users need, each part of an extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from turnout.core.checks import ConfigurationError


def imported(module: str, what: str, install: str, package: str | None = None) -> Any:
    """Import a module of a package that may be missing.

    Args:
        module: such as ``"optuna"``.
        what: what needs it, as the message begins: ``"a search"``.
        install: what to install, such as ``"turnout[search]"``.
        package: what the message calls the package; None is the module's name, or that of the module it misses.

    Raises:
        ConfigurationError: where it is not installed, with what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = package or error.name or module
        raise ConfigurationError(f"{what} needs {name}, which is not installed: pip install '{install}'") from error
