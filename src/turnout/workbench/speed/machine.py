"""Measure the throughput of this machine in a large matrix product and in a convolution."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from turnout.engine.hardware import num_processors

_SECONDS = 0.4  # for each rate


def matrix_rate(device: torch.device | str = "cpu", size: int = 1024) -> float:
    """Measure the operations per second of the product of two float32 matrices ``[size, size]``, with all processors.

    The result is the best of many repetitions, which other processes disturb least.
    """
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    return 2 * size**3 / _least_seconds(lambda: a @ b)


def convolution_rate(device: torch.device | str = "cpu", batch: int = 16, channels: int = 64, side: int = 28) -> float:
    """Measure the operations per second of a 3 x 3 convolution, forward and backward, with all processors.

    Input and output are ``[batch, channels, side, side]`` in the memory format channels-last.
    """
    order = {"device": device, "memory_format": torch.channels_last}
    x = torch.randn(batch, channels, side, side).to(**order).requires_grad_()
    weight = torch.randn(channels, channels, 3, 3).to(**order).requires_grad_()
    back = torch.randn(batch, channels, side, side).to(**order)

    def both_ways() -> None:
        torch.autograd.grad(F.conv2d(x, weight, padding=1), (x, weight), back)

    # The forward pass and the gradients of inputs and of weights have equally many products.
    return 3 * 2 * x.numel() * channels * 9 / _least_seconds(both_ways)


def _least_seconds(call: Callable[[], object]) -> float:
    """Return the shortest duration of a call in seconds, with all processors."""
    threads = max(torch.get_num_threads(), num_processors())
    return min(
        Timer("call()", globals={"call": call}, num_threads=threads).blocked_autorange(min_run_time=_SECONDS).times
    )
