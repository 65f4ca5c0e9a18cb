"""Names that a shell completes, found in the source of their registries: importing those would take seconds at every key."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]

REGISTRIES = {
    "ALGORITHMS": "algorithms/__init__.py",
    "SOURCES": "data/catalogue.py",
    "MODELS": "models/__init__.py",
    "AVAILABILITY": "cli/names.py",
    "PACES": "cli/names.py",
}
"""Where what has a name is registered, by the variable that holds it."""


def names_of(registry: str) -> Callable[[str], list[str]]:
    """Return what completes the beginning of a name in one of `REGISTRIES`, for ``typer.Option(autocompletion=...)``.

    >>> names_of("PACES")("b")
    ['buffered']
    """
    return lambda incomplete: [name for name in registered(registry) if name.startswith(incomplete)]


def registered(registry: str) -> list[str]:
    """Return the names in a registry, which its source holds as keys, or as the functions that the names are of."""
    for statement in ast.parse((_PACKAGE / REGISTRIES[registry]).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", "") == registry:
            if isinstance(statement.value, ast.Dict):
                return [key.value for key in statement.value.keys if isinstance(key, ast.Constant)]  # type: ignore[misc]
            if isinstance(statement.value, ast.DictComp) and isinstance(
                of := statement.value.generators[0].iter, ast.Tuple
            ):
                return [each.id for each in of.elts if isinstance(each, ast.Name)]
    return []
