"""Convert values of users to arrays and tensors of numbers, with errors that name the entry."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from turnout.core.checks import DataError, shown


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
