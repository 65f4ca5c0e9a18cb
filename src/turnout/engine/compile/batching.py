"""`torch.func.vmap` without the warning about operations that it computes one client at a time, and with less Python."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.func import vmap

_lock, _calls = threading.Lock(), 0

_torch: Any = getattr(torch._C, "_functorch", None)
_NEEDED = ("_vmap_increment_nesting", "_vmap_decrement_nesting", "_add_batch_dim", "_remove_batch_dim")


def batched(function: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    """Return a function as `torch.func.vmap` batches it, silent about operations without a batching rule.

    Layers of torch that are made of such operations (attention, `weight_norm`, `EmbeddingBag`) give right results, and
    users can do nothing about a warning that is meant for the authors of torch. It is off while any thread is in here.

    Args:
        function: takes tensors, or None, and returns a tensor or a tuple of tensors.
        in_dims: for each argument 0, where its first dimension is the batch, or None.

    >>> batched(lambda row, factor: factor * row.sum(), (0, None))(torch.ones(2, 3), torch.tensor(5.0))
    tensor([15., 15.])
    """
    slow, seen = vmap(function, in_dims), False

    def quiet(*arguments: Any) -> Any:
        nonlocal seen
        _count(1)
        try:
            if not seen:  # it looks at what is given, and loads what operations are made of
                value = slow(*arguments)
                seen = all(hasattr(_torch, name) for name in _NEEDED)  # or else it is another version of torch
                return value
            # What vmap does, operation by operation, without its search for tensors in whatever is given and returned.
            size = next(len(value) for value, dim in zip(arguments, in_dims, strict=True) if dim is not None)
            level = _torch._vmap_increment_nesting(size, "error")
            try:
                rows = zip(arguments, in_dims, strict=True)
                value = function(
                    *(each if dim is None else _torch._add_batch_dim(each, dim, level) for each, dim in rows)
                )
                if isinstance(value, torch.Tensor):
                    return _torch._remove_batch_dim(value, level, size, 0)
                return tuple(_torch._remove_batch_dim(each, level, size, 0) for each in value)
            finally:
                _torch._vmap_decrement_nesting()
        finally:
            _count(-1)

    return quiet


def _count(change: int) -> None:
    """Switch the warning off with the first call that begins, and on with the last one that ends."""
    global _calls
    with _lock:
        _calls += change
        torch._C._functorch._set_vmap_fallback_warning_enabled(not _calls)  # type: ignore[attr-defined]
