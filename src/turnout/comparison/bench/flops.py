"""Count the floating-point operations of a gradient."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from turnout.configuration import Configuration
from turnout.data.transforms import apply_transforms


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of matrix products and of convolutions; a multiplication and an addition are two.

    Everything else (activations, pooling, the sums of biases' gradients, the optimiser) counts nothing.
    """

    matrix: float
    convolution: float

    @property
    def total(self) -> float:
        """The sum of both."""
        return self.matrix + self.convolution

    def times(self, factor: float) -> Flops:
        """Return the same, so many times."""
        return Flops(factor * self.matrix, factor * self.convolution)

    def seconds(self, matrix_rate: float, convolution_rate: float) -> float:
        """Return how long they take at rates in operations a second."""
        return self.matrix / matrix_rate + (self.convolution / convolution_rate if self.convolution else 0.0)


def of_gradient(experiment: Configuration) -> Flops:
    """Return the operations of one example's part of a loss and its gradient, forwards and backwards.

    They are those that plain autograd does for the model as it is written, whatever the engine makes of it.
    """
    data = experiment.data
    x, y = apply_transforms(data.transforms, data.train.x[:1], None, training=False), data.train.y[:1]
    module = experiment.build_model().cpu()
    counter = FlopCounterMode(display=False)
    # The fused recurrent kernels of oneDNN are not counted; without it they fall apart into products, which are.
    with warnings.catch_warnings(action="ignore"), torch.backends.mkldnn.flags(enabled=False), counter:
        experiment.loss(module(x), y).sum().backward()
    counts = {str(operation): number for operation, number in counter.get_flop_counts()["Global"].items()}
    convolution = sum(number for operation, number in counts.items() if "convolution" in operation)
    return Flops(sum(counts.values()) - convolution, convolution)
