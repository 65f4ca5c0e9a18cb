"""Measure the rates of this machine: of a large matrix product and of a convolution."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from turnout.engine.hardware import num_processors

_SECONDS = 0.4  # for each rate


def matrix_rate(device: torch.device | str = "cpu", size: int = 1024) -> float:
    """Measure the operations a second of products of two float32 matrices ``[size, size]``, with all processors.

    The best of many repetitions: what the machine can do when nothing else wants it.
    """
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    return 2 * size**3 / _least_seconds(lambda: a @ b)


def convolution_rate(device: torch.device | str = "cpu", batch: int = 16, channels: int = 64, side: int = 28) -> float:
    """Measure the operations a second of a 3 x 3 convolution, forwards and backwards, with all processors.

    Images are ``[batch, channels, side, side]`` with the channels of a pixel side by side, and so is the output.
    """
    order = {"device": device, "memory_format": torch.channels_last}
    x = torch.randn(batch, channels, side, side).to(**order).requires_grad_()
    weight = torch.randn(channels, channels, 3, 3).to(**order).requires_grad_()
    back = torch.randn(batch, channels, side, side).to(**order)

    def both_ways() -> None:
        torch.autograd.grad(F.conv2d(x, weight, padding=1), (x, weight), back)

    # Forwards, for the inputs and for the weights: three times the products of one pass.
    return 3 * 2 * x.numel() * channels * 9 / _least_seconds(both_ways)


def _least_seconds(call: Callable[[], object]) -> float:
    """Return the least seconds of a call, with all processors."""
    threads = max(torch.get_num_threads(), num_processors())
    return min(
        Timer("call()", globals={"call": call}, num_threads=threads).blocked_autorange(min_run_time=_SECONDS).times
    )
