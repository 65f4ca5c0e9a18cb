"""Multinomial logistic regression."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from turnout.core.checks import refuse
from turnout.models.spec import ModelSpec


@dataclass(frozen=True)
class Logistic(ModelSpec, name="logistic"):
    """Multinomial logistic regression: logits = W x + b, with x flattened; ``(d + 1) C`` parameters.

    Attributes:
        zero: start from W = 0, b = 0 (the problem is convex) and not from PyTorch's random weights.

    Raises:
        ConfigurationError: if `zero` is neither True nor False.

    Example:
        >>> import turnout as to
        >>> network = to.models.Logistic().build(input_shape=(64,), num_classes=10)
        >>> sum(p.numel() for p in network.parameters())
        650
    """

    zero: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.zero, bool):
            raise refuse("zero", given=self.zero, needed="True or False")

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Flatten, then one linear layer, named ``output``."""
        output = nn.Linear(math.prod(input_shape), num_classes)
        if self.zero:
            nn.init.zeros_(output.weight)
            nn.init.zeros_(output.bias)
        return nn.Sequential(OrderedDict[str, nn.Module](flatten=nn.Flatten(), output=output))
