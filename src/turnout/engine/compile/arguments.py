"""Handle the arguments of traced functions: tensors, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

Arguments = tuple[torch.Tensor | None, ...]
"""The arguments of one call of a function of tensors."""


@dataclass(frozen=True)
class Signature:
    """The arguments of a function of tensors (or None).

    Attributes:
        changes: indices of the arguments that the function changes in place.
    """

    changes: tuple[int, ...]

    def of_tensors(self, function: Callable[..., Any], arguments: Arguments) -> Callable[..., Any]:
        """Return the function of only those arguments that are tensors; the others stay None."""
        is_tensor = [a is not None for a in arguments]

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)
            return function(*(next(rest) if tensor else None for tensor in is_tensor))

        return call

    def outcome(self, call: Callable[..., Any], arguments: Arguments, fixed: int | None) -> list[torch.Tensor]:
        """Return the tensors that a call returns and those that it changes; only the latter if the call is repeated."""
        fresh = self.fresh(arguments)
        value = call(*fresh)
        changed = [fresh[i] for i in self.changed(arguments)]
        return changed if fixed is not None else [*tree_leaves(value), *changed]

    def changed_of(self, arguments: Arguments) -> list[torch.Tensor]:
        """Return the arguments of a call that it has changed in place."""
        return tensors_of(arguments[i] for i in self.changes)

    def changed(self, arguments: Arguments) -> tuple[int, ...]:
        """Return the indices of the arguments that are changed in place, among those that are tensors."""
        return tuple(sum(a is not None for a in arguments[:i]) for i in self.changes if arguments[i] is not None)

    def fresh(self, arguments: Arguments) -> list[torch.Tensor]:
        """Return the arguments that are tensors, with copies of those that the function changes."""
        copies = [a.clone() if a is not None and i in self.changes else a for i, a in enumerate(arguments)]
        return tensors_of(copies)


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
