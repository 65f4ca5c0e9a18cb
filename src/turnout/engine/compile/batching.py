"""Batch functions over clients by `torch.func.vmap`, without its warning about operations that it computes one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.func import vmap

_lock, _calls = threading.Lock(), 0


def batched(function: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    """Batch a function by `torch.func.vmap`, without its warning about operations that have no batching rule.

    Layers of torch that are made of such operations (attention, `weight_norm`, `EmbeddingBag`) give right results, and
    users can do nothing about a warning that is meant for the authors of torch. It is off while any thread is in here.

    Args:
        function: takes tensors, or None, and returns a tensor or a tuple of tensors.
        in_dims: for each argument 0, where its first dimension is the batch, or None.

    >>> batched(lambda row, factor: factor * row.sum(), (0, None))(torch.ones(2, 3), torch.tensor(5.0))
    tensor([15., 15.])
    """
    mapped = vmap(function, in_dims)

    def quiet(*arguments: Any) -> Any:
        _count(1)
        try:
            return mapped(*arguments)
        finally:
            _count(-1)

    return quiet


def _count(change: int) -> None:
    """Switch the warning off with the first call that begins, and on with the last one that ends."""
    global _calls
    with _lock:
        _calls += change
        torch._C._functorch._set_vmap_fallback_warning_enabled(not _calls)  # type: ignore[attr-defined]
