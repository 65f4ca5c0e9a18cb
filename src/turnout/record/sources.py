"""Hash the source files of the package that a process has imported and that figures of runs depend on."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

_NO_MATTER = ("cli", "export", "exports", "reporting", "trackers", "workbench", "version")
"""Parts of the package that print, plot and export, on which no figure depends."""


def imported_modules() -> list[str]:
    """Return the modules of the package that this process has imported and that figures depend on, without its name."""
    names = (name.removeprefix("turnout.") for name in sys.modules if name.startswith("turnout."))
    return sorted(name for name in names if name.partition(".")[0] not in _NO_MATTER)


def hash_of(modules: Iterable[str]) -> str:
    """Return the hash of the source files of modules; one that is gone counts as empty.

    >>> hash_of(["core.random"]) == hash_of(["core.random"]), hash_of(["core.random"]) == hash_of(["core.no_such"])
    (True, False)
    """
    digest = hashlib.sha256()
    for name in sorted(modules):
        digest.update(f"{name}\n".encode())
        digest.update(_source(name))
    return digest.hexdigest()[:16]


def sources() -> dict[str, str]:
    """Return the imported modules, separated by spaces, and the hash of their files."""
    modules = imported_modules()
    return {"hash": hash_of(modules), "modules": " ".join(modules)}


def _source(name: str) -> bytes:
    try:
        spec = find_spec(f"turnout.{name}")
    except ModuleNotFoundError:  # of a package around it
        spec = None
    return Path(spec.origin).read_bytes() if spec is not None and spec.origin else b""
