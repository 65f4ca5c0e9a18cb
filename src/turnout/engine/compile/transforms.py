"""Differentiate and batch functions as `torch.func` does, without importing torch's compiler and without warnings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import func
from torch.func import vmap

_torch: Any = getattr(torch._C, "_functorch", None)
_NEEDED = (
    *("_grad_increment_nesting", "_grad_decrement_nesting", "_wrap_for_grad", "_unwrap_for_grad"),
    *("get_inplace_requires_grad_allowed", "set_inplace_requires_grad_allowed"),
)


def grad_and_value(function: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return a function that returns the gradient of `function` by its first argument, and its value.

    The operations are those of `torch.func.grad_and_value`, which imports ``torch._dynamo`` for the first derivative:
    1.6 seconds of a processor, only to exclude itself from torch's compiler.

    >>> grad_and_value(lambda w: (w * w).sum())(torch.tensor([1.0, 3.0]))
    (tensor([2., 6.]), tensor(10.))
    """
    if not all(hasattr(_torch, name) for name in _NEEDED):  # another version of PyTorch
        return func.grad_and_value(function)

    def both(params: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
        level = _torch._grad_increment_nesting()
        try:
            with torch.enable_grad():
                leaf, *rest = (
                    _torch._wrap_for_grad(value, level) if isinstance(value, torch.Tensor) else value
                    for value in (params, *others)
                )
                _require_gradient(leaf)
                value = function(leaf, *rest)
                # create_graph, because an outer derivative does not see a backward pass without it.
                gradient = None
                if value.requires_grad:
                    gradient = torch.autograd.grad(value, leaf, create_graph=True, allow_unused=True)[0]
                gradient = torch.zeros_like(leaf) if gradient is None else gradient
                return _torch._unwrap_for_grad(gradient, level), _torch._unwrap_for_grad(value, level)
        finally:
            _torch._grad_decrement_nesting()

    return both


def _require_gradient(leaf: torch.Tensor) -> None:
    """Call `requires_grad_`, which transforms do not allow otherwise."""
    before = _torch.get_inplace_requires_grad_allowed()
    _torch.set_inplace_requires_grad_allowed(True)
    try:
        leaf.requires_grad_()
    finally:
        _torch.set_inplace_requires_grad_allowed(before)


_lock, _calls = threading.Lock(), 0  # of batched functions in progress, in all threads


def batched(function: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    """Batch a function by `torch.func.vmap`, without its warning about operations that have no batching rule.

    Layers of torch with such operations (attention, `weight_norm`, `EmbeddingBag`) give correct results, and the
    warning is meant for the authors of torch. It is off while any thread runs a batched function.

    Args:
        function: function of tensors, or None, that returns a tensor or a tuple of tensors.
        in_dims: for each argument, 0 if its first dimension is the batch, or None.

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
    """Switch the warning off when the first call begins, and on when the last one ends."""
    global _calls
    with _lock:
        _calls += change
        torch._C._functorch._set_vmap_fallback_warning_enabled(not _calls)  # type: ignore[attr-defined]
