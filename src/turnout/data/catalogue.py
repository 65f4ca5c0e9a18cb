"""The data sets that can be named on a command line, and what of them is on this machine."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any, NamedTuple

from turnout.core.checks import ConfigurationError, known_name, nearest
from turnout.data.digits import scikit_learn
from turnout.data.directory import ELSEWHERE, PLACES
from turnout.data.source import SOURCES, Source


class Entry(NamedTuple):
    """One data set of the inventory.

    Attributes:
        name: what it is called.
        path: where its (first) files are; None if they are not here, or there are none.
        description: what it is.
        remedy: how to get it where there is no path, in a few words.
    """

    name: str
    path: Path | None
    description: str
    remedy: str


def load(name: str, directory: str | os.PathLike[str] | None = None, **options: Any) -> Source:
    """Load a data set by name; `options` are those of its function, e.g. ``load("shakespeare", stride=5)``.

    Raises:
        ConfigurationError: if the name or an option is unknown; names the nearest known one.
        DataError: if its files are missing or damaged.
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
    """One line that says what a named data set is."""
    documentation = inspect.getdoc(SOURCES[known_name("data set", name, SOURCES)]) or ""
    return documentation.split("\n", 1)[0]


def inventory(directory: str | os.PathLike[str] | None = None) -> list[Entry]:
    """Return every named data set, and the folder where its (first) files were found; reads no data."""
    entries = []
    for name in SOURCES:
        folders = [place.find(directory) for place in PLACES.get(name, ())]
        path = folders[0] if folders and None not in folders else None
        if name in ("digits", "digits_binary"):
            path = scikit_learn()
        entries.append(Entry(name, path, describe(name), ELSEWHERE.get(name, f"turnout data fetch {name}")))
    return entries
