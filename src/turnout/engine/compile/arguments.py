"""Handle the arguments of traced functions: tensors, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

Arguments = tuple[torch.Tensor | None, ...]
"""The arguments of one call of a function of tensors."""


def tensors_of(arguments: Iterable[torch.Tensor | None]) -> list[torch.Tensor]:
    """Return the arguments that are tensors."""
    return [a for a in arguments if a is not None]


def row_of(columns: Iterable[torch.Tensor | None], i: int) -> Arguments:
    """Return row i of each argument."""
    return tuple(None if rows is None else rows[i] for rows in columns)


def single(traced: Callable[..., Any], fixed: int | None) -> Callable[..., Any]:
    """Return a trace as a function of the tensors of one call, even if it takes lists: `fixed` tensors, and rows."""
    if fixed is None:
        return traced
    return lambda *tensors: traced(list(tensors[:fixed]), [tensor[None] for tensor in tensors[fixed:]])


def shape_of(arguments: Arguments) -> Any:
    """Return the key of a trace: shapes, types, and the strides of tensors that are not contiguous."""
    return tuple(None if a is None else (a.shape, a.dtype, a.is_contiguous() or a.stride()) for a in arguments)
