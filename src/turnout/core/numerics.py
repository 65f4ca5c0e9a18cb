"""Shield computations from settings of torch and NumPy that the caller has changed."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch

_DEVICES = ("cpu", "cuda")
_DENORMAL, _HALF = np.float32(1e-40), np.float32(0.5)
_forked = threading.Event()
_lock = threading.Lock()
_depth = 0
_caller_dtype = torch.float32


@contextmanager
def default_settings() -> Iterator[None]:
    """Use the defaults of torch and NumPy for whatever changes results, and restore the caller's settings afterwards.

    These are the default type and device of new tensors, autocast, inference mode, gradients, NumPy's treatment of
    floating-point errors, and the flushing of denormal numbers to zero. A forked process computes with one thread, which
    changes no result, unless it has called `use_threads`. Also a decorator.

    Example:
        >>> with torch.no_grad(), default_settings():
        ...     torch.is_grad_enabled()
        True
    """
    if _forked.is_set():  # OpenMP would wait forever for its threads, which only the parent has
        torch.set_num_threads(1)
    with ExitStack() as stack:
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if _flushes_denormals():
            torch.set_flush_denormal(False)
            stack.callback(torch.set_flush_denormal, True)
        stack.enter_context(_float32())
        yield


@contextmanager
def _float32() -> Iterator[None]:
    """Make float32 the default type, which all threads share: the first one sets it, and the last one restores it."""
    global _depth, _caller_dtype
    with _lock:
        if not _depth:
            _caller_dtype = torch.get_default_dtype()
            if _caller_dtype != torch.float32:
                torch.set_default_dtype(torch.float32)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth and _caller_dtype != torch.float32:
                torch.set_default_dtype(_caller_dtype)


def use_threads(number: int) -> None:
    """Compute with this number of threads of torch, also in a forked process.

    A forked process may use several only if its parent has used none: the server that starts the processes of comparisons.
    """
    _forked.clear()
    torch.set_num_threads(number)


def _flushes_denormals() -> bool:
    """Return whether this thread replaces denormal numbers by zero."""
    return not _DENORMAL * _HALF


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forked.set)
