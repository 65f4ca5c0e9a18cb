"""Import optional packages, which extras install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from turnout.core.checks import ConfigurationError


def imported(module: str, what: str, install: str, package: str | None = None) -> Any:
    """Import a module of a package that may be missing.

    Args:
        module: the module, such as ``"optuna"``.
        what: what needs it, the beginning of the message: ``"a search"``.
        install: the requirement to install, such as ``".[search]"``.
        package: the name of the package in the message; None is that of the missing module.

    Raises:
        ConfigurationError: if it is not installed, with the command to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = package or error.name or module
        raise ConfigurationError(
            f"{what} needs {name}, which is not installed: pip install '{install}' in a clone of turnout"
        ) from error
