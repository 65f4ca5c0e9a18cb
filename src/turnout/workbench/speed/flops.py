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
