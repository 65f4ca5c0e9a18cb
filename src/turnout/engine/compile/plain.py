"""Run a trace operation by operation from Python: the slowest backend, for every device and version of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from turnout.engine.compile.passes import needs_grad_mode
from turnout.engine.compile.tracer import Operations


def build(
    traced: Operations, arguments: list[torch.Tensor], changes: tuple[int, ...], fixed: int | None
) -> Callable[..., Any]:
    """Return a function that runs the operations; see `Backend.build`."""
    del arguments, changes
    once = traced.module().forward

    def repeat(stays: list[torch.Tensor], columns: list[torch.Tensor]) -> None:
        for rows in zip(*(values.unbind() for values in columns), strict=True):
            once(*stays, *rows)

    return without_derivatives(traced, once if fixed is None else repeat)


def without_derivatives(
    traced: Operations,
    function: Callable[..., Any],
    without: Callable[[], AbstractContextManager[Any]] = torch.no_grad,
) -> Callable[..., Any]:
    """Return a function that runs a trace without recording derivatives, whose operations it already contains."""
    mode = torch.enable_grad if needs_grad_mode(traced) else without

    def call(*arguments: Any) -> Any:
        with mode():
            return function(*arguments)

    return call
