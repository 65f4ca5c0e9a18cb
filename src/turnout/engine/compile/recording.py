"""Repeat recorded operations on the memory of the recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

Record = Callable[[Callable[[], Any], torch.device], tuple[Callable[[], object], Any]]
"""Function that runs a given function at least once, and returns a function that repeats its operations, and the value.

The repetition uses the same memory.
"""


class Recording:
    """A recorded function of tensors, with buffers that arguments are copied into and changes are copied out of.

    Args:
        function: function of tensors that returns tensors.
        arguments: tensors to record it with; they are not changed.
        changes: indices of the arguments that it changes in place.
        still: indices of the arguments that it reads without a copy; the recording keeps them alive.
        record: function that makes the recording.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: list[torch.Tensor],
        changes: tuple[int, ...],
        still: frozenset[int],
        record: Record,
    ) -> None:
        self._changes = changes
        self._still = {i: arguments[i] for i in still}
        self._buffers = [a if i in still else _empty_like(a) for i, a in enumerate(arguments)]
        self._copy_in(arguments)
        buffers = self._buffers  # a function of `self` would keep the memory until the next garbage collection
        self._replay, self._value = record(lambda: function(*buffers), arguments[0].device)

    def fits(self, arguments: list[torch.Tensor]) -> bool:
        """Return whether arguments, the first ones of a call, include the tensors that are read without a copy."""
        return all(i >= len(arguments) or arguments[i] is argument for i, argument in self._still.items())

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value: copies, or the arguments that it changed."""
        self._copy_in(list(arguments))
        self._replay()
        self._copy_out(list(arguments))
        changed = {self._buffers[i].data_ptr(): arguments[i] for i in self._changes}
        return tree_map(lambda value: _outside(value, changed), self._value)

    def repeat(self, fixed: list[torch.Tensor], columns: list[torch.Tensor]) -> None:
        """Repeat the function for its changes in `fixed`, once for every row of `columns`; only rows are copied."""
        self._copy_in(fixed)
        for i in range(len(columns[0])):
            self._copy_in([rows[i] for rows in columns], len(fixed))
            self._replay()
        self._copy_out(fixed)

    def _copy_in(self, arguments: list[torch.Tensor], first: int = 0) -> None:
        """Copy arguments into the buffers, starting at the buffer with index `first`."""
        for i, argument in enumerate(arguments, first):
            if i not in self._still:
                _stored(self._buffers[i]).copy_(_stored(argument))

    def _copy_out(self, arguments: list[torch.Tensor]) -> None:
        """Copy the changed buffers into their arguments."""
        for i in self._changes:
            arguments[i].copy_(self._buffers[i])


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of an expanded tensor that is stored in memory."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def num_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor in memory."""
    return _stored(tensor).numel() * tensor.element_size()


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return an uninitialized tensor of the same shape and strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _outside(value: Any, changed: dict[int, torch.Tensor]) -> Any:
    """Return a value that no later replay overwrites: the argument whose buffer it is in, or a copy."""
    if not isinstance(value, torch.Tensor):
        return value
    argument = changed.get(value.data_ptr())
    return argument if argument is not None and argument.shape == value.shape else value.clone()
