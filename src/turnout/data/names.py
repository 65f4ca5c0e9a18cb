"""Collect the names of classes and categories that readers number, and compare those of a site with those of a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData
from turnout.data.preparation import Preparation

LOG = logging.getLogger("turnout.data")

_DECLARED = ("classes", "categories", "mean", "std")


@dataclass(frozen=True)
class Names:
    """Names that a reader numbered, and scales, which all sites of a federation must share.

    Attributes:
        source: what was read, such as ``"column 'ill'"``.
        values: ``classes``, a list of names; ``categories``, ``mean`` and ``std`` by column. Each may be missing.
    """

    source: str
    values: Mapping[str, Any]


_READ: ContextVar[list[Names] | None] = ContextVar("names", default=None)


@contextmanager
def names_read() -> Iterator[list[Names]]:
    """Collect the names of all data that are read within the context."""
    read: list[Names] = []
    token = _READ.set(read)
    try:
        yield read
    finally:
        _READ.reset(token)


def note(names: Names) -> None:
    """Note names for `names_read`."""
    if (read := _READ.get()) is not None and names not in read:
        read.append(names)


def note_classes(source: str, classes: Sequence[str] | None) -> None:
    """Note names of classes 0, 1, ..., if there are names."""
    if classes is not None:
        note(Names(source, {"classes": list(classes)}))


def names_of(data: FederatedData) -> dict[str, Any]:
    """Return the names and scales that data of a server declare for those of its clients."""
    if data.is_declared:
        return {name: data.recipe[name] for name in _DECLARED if name in data.recipe}
    return data.preparation.names if isinstance(data.preparation, Preparation) else {}


def check_names(here: Sequence[Names], announced: Mapping[str, Any]) -> None:
    """Check that names and scales of a client are those that a server announces.

    Args:
        here: names that were read by this client.
        announced: the section of data of the server's settings, with ``classes`` as names or a number, ``categories``,
            ``mean`` and ``std``, each of which may be missing.

    Raises:
        ConfigurationError: if they differ, with both lists, or if the server announces none for names of the client.
    """
    for names in here:
        for name, value in names.values.items():
            there = _plain(announced.get(name))
            if there is None or isinstance(there, int):
                _check_unannounced(names.source, name, value, there)
            elif there != value:
                raise ConfigurationError(
                    f"{name}: this client's data have {value}, and the server announces {there}: declare what the server "
                    f"has where the data are read, {name}={there}"
                )


def _check_unannounced(source: str, name: str, value: Any, there: int | None) -> None:
    """Refuse names that no other site can compare with its own; warn of scales."""
    if not value or (name == "classes" and value == [str(number) for number in range(len(value))]):
        return
    if name in ("mean", "std"):
        LOG.warning("the server announces no %s, and this client standardizes by its own: %s", name, value)
        return
    number = "no" if there is None else f"{there}"
    raise ConfigurationError(
        f"{name}: this client's data have {value}, and the server announces {number} {name} without names: sites that "
        f"number {source} by what they have give one number to different {name}. Write the same {name}=... where every "
        f"site reads its data, and {name} = {_settings(value)} in the server's section data"
    )


def _settings(value: Any) -> str:
    """Return names as in a TOML file."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_settings(part)}" for key, part in value.items()) + "}"
    return str(value).replace("'", '"')


def _plain(value: Any) -> Any:
    """Return tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [*value] if isinstance(value, tuple) else value
