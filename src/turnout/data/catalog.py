"""List the data sets with a name, and find their files on this machine."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any, NamedTuple

from turnout.core.checks import ConfigurationError, known_name, nearest
from turnout.data.directory import ELSEWHERE, PLACES
from turnout.data.source import SOURCES, Source


class Entry(NamedTuple):
    """One data set of the inventory.

    Attributes:
        name: name of the data set.
        path: folder of its (first) files; None if they are missing, or it has none.
        description: description in one line.
        remedy: how to get the data if there is no path.
    """

    name: str
    path: Path | None
    description: str
    remedy: str


def load(name: str, directory: str | os.PathLike[str] | None = None, **options: Any) -> Source:
    """Load a data set by name; `options` are those of its function, e.g. ``load("shakespeare", stride=5)``.

    Raises:
        ConfigurationError: if a name or option is unknown, with the nearest known one.
        DataError: if files are missing or damaged.
    """
    source = SOURCES[known_name("data set", name, SOURCES)]
    known = set(inspect.signature(source).parameters)
    for option in options:
        if option not in known:
            allowed = known - {"directory"}
            hint = nearest(option, allowed) if allowed else "it has none"
            raise ConfigurationError(f"unknown option {option!r} of data set {name!r}: {hint}")
    return source(directory, **options) if "directory" in known else source(**options)


def describe(name: str) -> str:
    """Return a description of a data set in one line."""
    documentation = inspect.getdoc(SOURCES[known_name("data set", name, SOURCES)]) or ""
    return documentation.split("\n", 1)[0]


def inventory(directory: str | os.PathLike[str] | None = None) -> list[Entry]:
    """Return all data sets with the folders of their (first) files; no data are read."""
    entries = []
    for name in SOURCES:
        folders = [place.find(directory) for place in PLACES.get(name, ())]
        path = folders[0] if folders and None not in folders else None
        entries.append(Entry(name, path, describe(name), ELSEWHERE.get(name, f"turnout data fetch {name}")))
    return entries
