"""Multinomial logistic regression, and one in two parts with a nonconvex regularizer, by which theorems are checked."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from turnout.core.checks import refuse
from turnout.core.ranges import Count, NotNegative
from turnout.models.spec import ModelSpec

if TYPE_CHECKING:
    from turnout.data.shards import Shards


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


def regularized_logistic_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """``log(1 + exp(-c s)) + rho r`` of each example, ``[b]``, from what `TwoParts` returns; c is 1 for label 1, -1 for 0."""
    scores, penalty = outputs[:, 1] - outputs[:, 0], -outputs.mean(dim=1)
    return F.softplus((1 - 2 * targets) * scores) + penalty


@dataclass(frozen=True)
class SplitLogistic(ModelSpec, name="split_logistic"):
    """Chen et al., section 5: of two classes, with shared features a and personal features b of every example::

        f_i(u, v_i) = mean_l log(1 + exp(-c_l (a_l . u + b_l . v_i)))
                      + rho (||u||^2 / (1 + ||u||^2) + ||v_i||^2 / (1 + ||v_i||^2))

    The parameters are called ``shared`` (u) and ``personal`` (v), so ``Personal("personal")`` makes v personal; both start
    from zero. It is trained with `regularized_logistic_loss`. The paper divides the sum by N, which it does not define;
    here it is the number of the client's own examples.

    Attributes:
        num_shared: how many inputs, from the first on, are shared; None is half of them.
        rho: strength of the regularizer.

    Raises:
        ConfigurationError: if an option is out of range; `build` refuses other than two classes, and inputs that leave
            a part empty.

    Example:
        >>> import turnout as to
        >>> network = to.models.SplitLogistic(num_shared=3).build(input_shape=(5,), num_classes=2)
        >>> {name: list(p.shape) for name, p in network.named_parameters()}
        {'shared': [3], 'personal': [2]}

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """

    loss = staticmethod(regularized_logistic_loss)

    num_shared: Count | None = None
    rho: NotNegative = 0.01

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a `TwoParts` over the flattened input."""
        if num_classes != 2:
            raise refuse(
                "num_classes of SplitLogistic", given=num_classes, needed="2", instead="Use Logistic() for more"
            )
        inputs = math.prod(input_shape)
        shared = inputs // 2 if self.num_shared is None else self.num_shared
        if not 0 < shared < inputs:
            raise refuse(
                "num_shared", given=self.num_shared, needed=f"a number from 1 to {inputs - 1}, one less than inputs"
            )
        return TwoParts(shared, inputs - shared, self.rho)

    def smoothness(self, shards: Shards) -> float:
        """L, for which all gradients of all f_i are Lipschitz (assumption 1): ``max_i ||X_i||^2 / (4 n_i) + 2 rho``.

        The logistic loss is curved by 1/4 at most, the regularizer by 2 rho; X_i are the inputs of client i ``[n_i, d]``.
        """
        largest = 0.0
        for k in np.flatnonzero(shards.sizes):
            x = shards.client(int(k))[0].flatten(1).double()
            gram = x.T @ x if x.shape[1] < len(x) else x @ x.T
            largest = max(largest, float(torch.linalg.eigvalsh(gram)[-1]) / (4 * len(x)))
        return largest + 2 * self.rho


class TwoParts(nn.Module):
    """Inputs ``[b, ...]`` to two logits ``[b, 2]`` that differ by the score s and whose mean is ``-rho r``.

    A loss reads outputs and targets alone, and softmax does not depend on a shift of both logits, which therefore holds the
    regularizer.
    """

    def __init__(self, num_shared: int, num_personal: int, rho: float) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.zeros(num_shared))
        self.personal = nn.Parameter(torch.zeros(num_personal))
        self.rho = rho

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return half the score with either sign, shifted by the regularizer."""
        x = x.flatten(1)
        num_shared = self.shared.shape[0]
        half = (x[:, :num_shared] @ self.shared + x[:, num_shared:] @ self.personal) / 2
        penalty = self.rho * sum(_bounded(part.square().sum()) for part in (self.shared, self.personal))
        return torch.stack([-half, half], dim=1) - penalty


def _bounded(square: torch.Tensor) -> torch.Tensor:
    """Return ``||w||^2 / (1 + ||w||^2)``."""
    return square / (1 + square)
