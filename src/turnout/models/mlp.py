"""Multilayer perceptron."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from turnout.models.spec import DropoutRate, ModelSpec, sizes


@dataclass(frozen=True)
class Mlp(ModelSpec, name="mlp"):
    """Multilayer perceptron with ReLU on the flattened input, and PyTorch's default random weights.

    ``Mlp(hidden=(64, 30), dropout=0.5)`` is the 784-64-30-C network of MaxFL's experiments, whose paper leaves the
    rate of dropout open. ``Mlp(hidden=(200, 100))`` is a three-layer network for FOLB's MNIST figures.

    Attributes:
        hidden: width of each hidden layer, from the input on.
        dropout: probability of dropping a unit of the first hidden layer in training; the other layers have no dropout.
        batch_norm: normalize hidden layers over minibatches before the ReLU; clients have to keep the statistics to
            themselves (see `turnout.fedbn`).

    Raises:
        ConfigurationError: if `hidden` is empty or holds anything but whole numbers >= 1, or `dropout` is outside [0,
            1).

    Example:
        >>> import turnout as to
        >>> to.models.Mlp(hidden=(16,)).build(input_shape=(1, 8, 8), num_classes=10)
        Sequential(
          (flatten): Flatten(start_dim=1, end_dim=-1)
          (hidden1): Linear(in_features=64, out_features=16, bias=True)
          (relu1): ReLU()
          (output): Linear(in_features=16, out_features=10, bias=True)
        )
    """

    hidden: tuple[int, ...] = (64,)
    dropout: DropoutRate = 0.0
    batch_norm: bool = False

    def __post_init__(self) -> None:
        sizes("hidden", self.hidden, instead="Write hidden=(64,), or Logistic() for a model without hidden layers")

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Flatten, the hidden layers ``hidden1``, ``hidden2``, ..., then ``output``."""
        parts = OrderedDict[str, nn.Module](flatten=nn.Flatten())
        width = math.prod(input_shape)
        for i, wider in enumerate(self.hidden, start=1):
            parts[f"hidden{i}"] = nn.Linear(width, wider)
            if self.batch_norm:
                parts[f"norm{i}"] = nn.BatchNorm1d(wider)
            parts[f"relu{i}"] = nn.ReLU()
            if i == 1 and self.dropout:
                parts["dropout"] = nn.Dropout(self.dropout)
            width = wider
        parts["output"] = nn.Linear(width, num_classes)
        return nn.Sequential(parts)
