"""Read the column of clients of a table, which has numbers or the names of the data's clients."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.core.checks import DataError, shown
from turnout.data.values import canonical
from turnout.population.table import Column, cells, numbers

LOG = logging.getLogger(__name__)


def clients(column: Column, what: str) -> np.ndarray:
    """Return a column of clients: numbers, int64, or names, texts in one form of Unicode.

    Texts are numbers if all of them are written as Python writes whole numbers; 007 is a name.

    Raises:
        DataError: if a client is missing, or numbers stand beside names.
    """
    column = plain_texts(column)
    if isinstance(column, pa.ChunkedArray) and not pa.types.is_string(column.type):
        return numbers(column, "client", what, whole=True)
    if (fast := as_whole(column)) is not None and fast.cast(pa.string()).equals(column):
        return numbers(fast, "client", what, whole=True)
    values = cells(column)
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values) or all(_is_whole(text) for text in texts):
        if texts and (named := next((text for text in texts if not _is_whole(text)), None)) is not None:
            row = values.index(named) + 1
            raise DataError(
                f"{what}, row {row}: got {shown(named)} as 'client', needed a whole number >= 0 and < 2**62: other rows have "
                "numbers, or none; write names or numbers in all"
            )
        return numbers(values, "client", what, whole=True)
    return np.array([canonical(text) for text in texts], dtype=str)


def _is_whole(text: str) -> bool:
    """Return whether a text is written as Python writes a whole number."""
    return text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0")


def plain_texts(column: Column) -> Column:
    """Return a column with texts of any of Arrow's types as strings."""
    kinds = (pa.types.is_large_string, pa.types.is_string_view, pa.types.is_dictionary)
    is_text = isinstance(column, pa.ChunkedArray) and any(is_kind(column.type) for is_kind in kinds)
    return column.cast(pa.string()) if is_text else column


def as_whole(column: Column) -> pa.ChunkedArray | None:
    """Return a column of texts as int64, without Python objects for its cells; None if some are not whole numbers."""
    try:
        return pc.cast(column, pa.int64()) if isinstance(column, pa.ChunkedArray) else None
    except pa.ArrowInvalid:
        return None


def numbered(client: np.ndarray, names: Sequence[str] | None, what: str) -> np.ndarray | None:
    """Return the number of the client that each row names, -1 for names that do not train; None if rows have numbers.

    Args:
        client: the clients of the rows, from `clients`.
        names: names of the clients of the data; None where they have none.
        what: name of the table in errors.

    Raises:
        DataError: if none of the names is a client of the data, with names of both.
    """
    if client.dtype.kind != "U" and not _are_names(client, names or (), what):
        return None
    client, known = client.astype(str), {canonical(name): number for number, name in enumerate(names or ())}
    number = np.array([known.get(name, -1) for name in client.tolist()])
    if (number < 0).all():
        there, here = _listed(np.unique(client).tolist()), "numbers only" if names is None else _listed(names)
        raise DataError(
            f"{what}: it names the clients {there}, and those of the data are {here}: write the same names, or numbers from "
            "0 on"
        )
    if (number < 0).any():
        others = np.unique(client[number < 0]).tolist()
        LOG.warning("%s: %d of its names are not clients that train, such as %r: their rows are left out",
                    what, len(others), others[0])  # fmt: skip
    return number


def _are_names(client: np.ndarray, names: Sequence[str], what: str) -> bool:
    """Return whether numbers are names of clients, which data call by whole numbers other than 0, 1, ....

    They are if all of them are names, or if some are and not all can be numbers from 0 on.
    """
    there, here = set(np.unique(client).astype(str).tolist()), set(names)
    if list(names) == list(map(str, range(len(names)))) or here.isdisjoint(there):
        return False
    if not there <= here:
        return bool(client.max() >= len(names))
    if client.max() < len(names):
        LOG.warning("%s: its numbers, such as %d, are read as names of the data's clients, not as their numbers from 0 on",
                    what, client[0])  # fmt: skip
    return True


def by_number(client: np.ndarray, what: str) -> np.ndarray:
    """Return numbers of clients unchanged.

    Raises:
        DataError: if clients are named, which only data with these names can number.
    """
    if client.dtype.kind == "U":
        raise DataError(
            f"{what}: it names the clients {_listed(np.unique(client).tolist())}, which data with these names number: "
            "split the data by natural client, or write numbers from 0 on"
        )
    return client


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
