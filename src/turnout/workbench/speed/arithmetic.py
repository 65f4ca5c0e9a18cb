"""Count the floating-point operations of a gradient, and measure how many this machine computes in a second."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from turnout.configuration import Configuration
from turnout.data.transforms import apply_transforms
from turnout.engine.hardware import num_processors


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of matrix products and of convolutions; a multiply-add counts as two.

    Other operations (activations, pooling, sums of bias gradients, the optimizer) are not counted.
    """

    matrix: float
    convolution: float

    @property
    def total(self) -> float:
        """The operations of both kinds."""
        return self.matrix + self.convolution

    def times(self, factor: float) -> Flops:
        """Return the operations multiplied by a factor."""
        return Flops(factor * self.matrix, factor * self.convolution)

    def seconds(self, matrix_rate: float, convolution_rate: float) -> float:
        """Return the duration at rates in operations per second."""
        return self.matrix / matrix_rate + (self.convolution / convolution_rate if self.convolution else 0.0)


def of_gradient(experiment: Configuration) -> Flops:
    """Count the operations of the forward and backward pass for one example.

    They are those of plain autograd for the model as written; the engine may do fewer.
    """
    data = experiment.data
    x, y = apply_transforms(data.transforms, data.train.x[:1], None, training=False), data.train.y[:1]
    module = experiment.build_model().cpu()
    counter = FlopCounterMode(display=False)
    # FlopCounterMode does not count the fused recurrent kernels of oneDNN. Without oneDNN they are matrix products.
    with warnings.catch_warnings(action="ignore"), torch.backends.mkldnn.flags(enabled=False), counter:
        experiment.loss(module(x), y).sum().backward()
    counts = {str(operation): number for operation, number in counter.get_flop_counts()["Global"].items()}
    convolution = sum(number for operation, number in counts.items() if "convolution" in operation)
    return Flops(sum(counts.values()) - convolution, convolution)


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
