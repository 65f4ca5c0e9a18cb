"""Names that a shell completes, read from the source of their packages: importing those would take seconds at every key."""

from __future__ import annotations

from collections.abc import Callable

from turnout.core.registry import names_in_source

PACKAGES = {
    "algorithm": "turnout.algorithms",
    "data": "turnout.data",
    "model": "turnout.models",
    "availability": "turnout.population.availability",
    "pace": "turnout.protocol.pace",
    "loss": "turnout.engine.loss",
}
"""The package of the family that a flag names a member of."""


def names_of(flag: str) -> Callable[[str], list[str]]:
    """Return what completes the beginning of a name after one of `PACKAGES`, for ``typer.Option(autocompletion=...)``.

    >>> names_of("pace")("ro")
    ['rounds']
    """
    return lambda incomplete: [name for name in names_in_source(PACKAGES[flag]) if name.startswith(incomplete)]
