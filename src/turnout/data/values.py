"""Convert values of users: to arrays and tensors of numbers, and the ids of natural clients to numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from turnout.core.checks import LARGEST_COUNT, DataError, shown


def as_tensor(values: Any, what: str, untyped: torch.dtype = torch.float32) -> torch.Tensor:
    """Convert numbers to a tensor of their type, and Python floats to `untyped`.

    Raises:
        DataError: if values are not real numbers, are sparse, masked or of several lengths, with the first bad entry.
    """
    if isinstance(values, torch.Tensor):
        return _dense(values, what)
    array = as_array(values, what)
    if array.dtype.kind not in "bfiu":
        raise _no_numbers(array, values, what)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = array.copy()  # torch has neither read-only tensors nor negative strides
    try:
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} are {array.dtype}, which torch does not have: convert them to float64") from error
    return tensor if _typed(values) or tensor.dtype != torch.float64 else tensor.to(untyped)


def as_array(values: Any, what: str) -> np.ndarray:
    """Return values as an array.

    Raises:
        DataError: if entries are masked, which torch does not know, or the values are no array.
    """
    for part in values if isinstance(values, list | tuple) else (values,):
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise DataError(
                f"{what} are masked in {np.ma.count_masked(part)} places: write x.filled(...), or leave such examples out"
            )
        if callable(getattr(part, "toarray", None)):
            raise DataError(f"{what} are a sparse {type(part).__name__}, needed a dense array: write x.toarray()")
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(f"{what} differ in length from example to example: pad them to one shape") from error
    except (TypeError, RuntimeError, OverflowError, MemoryError) as error:
        raise DataError(f"{what} cannot be made an array: {error}") from error


def _dense(values: torch.Tensor, what: str) -> torch.Tensor:
    """Return a tensor of real numbers without its gradient; raise an error for other kinds of tensors."""
    if values.is_complex():
        raise DataError(f"{what} must be real numbers, got {values.dtype}: give real and imaginary parts side by side")
    if values.layout != torch.strided:
        raise DataError(f"{what} are a sparse tensor ({values.layout}), needed a dense one: write x.to_dense()")
    if values.is_quantized or values.is_meta:
        raise DataError(f"{what} must be a dense tensor with values, got {values.dtype} on {values.device}")
    return values.detach()


def _no_numbers(array: np.ndarray, values: Any, what: str) -> DataError:
    """Return the error for an array with entries that are not numbers, with the first of them."""
    if values is None:
        return DataError(f"{what} is None, a missing value: leave such examples out, or fill it in")
    if array.dtype.kind == "O" and array.ndim:
        others = [not isinstance(entry, int | float | np.number) for entry in array.flat]
        wrong = np.argwhere(np.reshape(others, array.shape))
        if len(wrong):
            row, *inner = wrong[0].tolist()
            names = getattr(values, "columns", None)  # of a data frame
            column = f", column {inner[0] if names is None else names[inner[0]]}" if inner else ""
            entry = array[tuple(wrong[0])]
            remedy = (
                "which is a missing value: leave such examples out, or fill it in"
                if entry is None
                else "which is no number: turn texts or categories into indices first"
            )
            return DataError(f"{what}: got {shown(entry)} in row {row}{column} (from 0), {remedy}")
    remedy = "turn texts into indices first: names, y = numpy.unique(y, return_inverse=True)"
    return DataError(f"{what} must be numbers, got {array.dtype}: {remedy}")


def _typed(values: Any) -> bool:
    """Return whether values have a dtype, which Python numbers do not have."""
    while isinstance(values, list | tuple) and len(values):
        values = values[0]
    return not isinstance(values, int | float) or isinstance(values, np.generic)


def canonical(name: str) -> str:
    r"""Return the composed form (NFC) of a text, which is one for all spellings that Unicode declares equal.

    >>> canonical("Jose\u0301") == "Jos\u00e9"
    True
    """
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def different_names(what: str, names: Iterable[str]) -> None:
    """Check that no two names are the same text for Unicode, or differ by spaces at their ends alone.

    Raises:
        DataError: if two are or do, which readers would show alike.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(canonical(name).strip(), name)
        if canonical(other) != canonical(name):
            raise DataError(
                f"{what}: {other!r} and {name!r} differ by spaces alone: strip them, e.g. frame[column].str.strip(), or "
                "write other names"
            )
        if other != name:
            raise DataError(
                f"{what}: {other!a} and {name!a} are one text in two forms of Unicode: write them in one form, such as "
                "unicodedata.normalize('NFC', name)"
            )


def number_clients(ids: Any, test_ids: Any = None) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """Number natural clients 0, 1, ...: those of `ids` in sorted order, then those that are only in `test_ids`.

    Texts that Unicode declares equal are one client.

    Returns:
        The numbers of `ids`, those of `test_ids` (None without any), and the names of the clients.

    Raises:
        DataError: if ids are neither whole numbers nor texts, or are missing, empty, or of both kinds.
    """
    train = _plain_ids("client_ids", ids)
    clients, numbers = np.unique(train, return_inverse=True)
    if test_ids is None:
        return numbers.astype(np.int64), None, tuple(map(str, clients.tolist()))
    test = _plain_ids("test_client_ids", test_ids)
    if len(train) and len(test) and (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise DataError(
            f"client_ids are {train.dtype}, test_client_ids {test.dtype}: give whole numbers or texts for both"
        )
    clients = np.concatenate([clients, np.setdiff1d(test, clients)])
    order = np.argsort(clients)
    test_numbers = order[np.searchsorted(clients, test, sorter=order)]
    return numbers.astype(np.int64), test_numbers.astype(np.int64), tuple(map(str, clients.tolist()))


def _plain_ids(what: str, values: Any) -> np.ndarray:
    """Return ids as int64, or as texts in canonical form."""
    if isinstance(values, list | tuple) and len({_kind(value) for value in values}) > 1:
        values = np.fromiter(values, dtype=object, count=len(values))  # NumPy would make texts of all of them
    ids = as_array(as_tensor(values, what).cpu() if isinstance(values, torch.Tensor) else values, what)
    if ids.ndim == 1 and ids.dtype.kind == "f":
        raise _not_whole(what, ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iuUSO":
        raise DataError(f"{what} must be whole numbers or strings of shape [n], got {ids.dtype} {list(ids.shape)}")
    if ids.dtype.kind == "u" and (ids > np.uint64(LARGEST_COUNT)).any():
        raise DataError(f"{what}: got {ids.max()}, needed less than 2**63: write the ids as strings")
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)  # with unsigned numbers on one side only, NumPy would compare both as floats
    if ids.dtype.kind == "U":
        distinct, index = np.unique(ids, return_inverse=True)
        texts = np.array([canonical(name) for name in distinct.tolist()], dtype=str)[index] if len(ids) else ids
    else:
        names = [_client_name(what, row, value) for row, value in enumerate(ids)]
        _check_one_kind(what, ids)
        texts = np.array(names, dtype=str)
    if (empty := np.char.str_len(texts) == 0).any():
        raise DataError(f"{what}: that of example {int(empty.argmax())} is empty: leave such examples out")
    different_names(what, np.unique(texts).tolist())
    return texts


def _not_whole(what: str, ids: np.ndarray) -> DataError:
    """Return the error for ids that are floats."""
    missing = np.isnan(ids)
    if missing.any():
        why = f"whole numbers become floats beside missing ones, the first in example {int(missing.argmax())}"
        return DataError(f"{what} are {ids.dtype}: {why}: leave such examples out, and write ids.astype(int)")
    return DataError(f"{what} are {ids.dtype}, needed whole numbers or texts: write ids.astype(int), or ids as strings")


def _kind(value: Any) -> str:
    """Return the kind of an id: a number, a text, or the name of another type."""
    if isinstance(value, str | bytes):
        return "text"
    return "number" if isinstance(value, int | np.integer) else type(value).__name__


def _check_one_kind(what: str, ids: np.ndarray) -> None:
    """Raise an error for numbers beside texts, which would be the same clients as texts: 1 and "1"."""
    kinds = [_kind(value) for value in ids]
    if {"text", "number"} <= set(kinds):
        text, number = kinds.index("text"), kinds.index("number")
        raise DataError(
            f"{what}: that of example {text} is the text {shown(ids[text])}, of example {number} the number "
            f"{shown(ids[number])}: give whole numbers or texts for all"
        )


def _client_name(what: str, row: int, value: Any) -> str:
    """Convert an id to a text."""
    if value is None or value != value:
        raise DataError(f"{what}: that of example {row} is {value!r}: leave out examples whose client is unknown")
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{what}: that of example {row} is {shown(bytes(value))}, which is not UTF-8: decode it, such as "
                "name.decode('latin-1')"
            ) from error
    if isinstance(value, int) and value.bit_length() > 10_000:
        return shown(value)
    name = canonical(str(value))
    if name.endswith("\0"):
        raise DataError(
            f"{what}: that of example {row} is {shown(name)}, and NumPy drops zeros at the end: leave them out"
        )
    return name
