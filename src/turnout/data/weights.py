"""Weight examples individually and by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, DataError, refuse

ClassWeights = Literal["balanced"] | tuple[float, ...]
"""``"balanced"``, or one number > 0 for each class."""


def as_weights(values: Any) -> torch.Tensor | None:
    """Convert weights to a float64 tensor ``[n]``; None stays None.

    Raises:
        DataError: if values are not numbers.
    """
    if values is None:
        return None
    try:
        return torch.as_tensor(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(f"weights: {error}; needed one number > 0 for each example") from error


def check_weights(name: str, weights: torch.Tensor | None, n: int) -> None:
    """Check that weights have shape ``[n]`` and are finite and > 0.

    Raises:
        DataError: if not, with the first bad example.
    """
    if weights is None:
        return
    if weights.shape != (n,) or not weights.is_floating_point():
        raise DataError(f"{name} must be floating point of shape [{n}], got {weights.dtype} {list(weights.shape)}")
    bad = ~((weights > 0) & weights.isfinite())
    if bad.any():
        row = int(bad.nonzero()[0])
        raise DataError(
            f"{name} must be finite and > 0, got {weights[row].item()} in example {row}: leave out examples that do not count"
        )


def check_class_weights(weights: Any, num_classes: int | None) -> None:
    """Check that class weights are ``"balanced"`` or one number > 0 for each class.

    Raises:
        ConfigurationError: if values are others, or the data have no classes.
    """
    if num_classes is None:
        raise ConfigurationError("class_weights: the targets of these data are no class labels: leave it out")
    if isinstance(weights, str) and weights == "balanced":
        return
    numbers = isinstance(weights, Sequence) and all(isinstance(w, int | float) and 0 < w < np.inf for w in weights)
    if not numbers or len(weights) != num_classes:
        raise refuse(
            "class_weights", given=weights, needed=f"'balanced', or a tuple of {num_classes} finite numbers > 0"
        )


@dataclass(frozen=True)
class ExampleWeights:
    """Weights of examples: the product of the example's weight and that of its class, with mean 1 over training examples.

    ``v_i = s_i c_{y_i} / mean_j (s_j c_{y_j})`` with the mean over the training examples j of all clients, so that

        ``(1 / n) sum_i v_i loss_i = sum_i s_i c_{y_i} loss_i / sum_i s_i c_{y_i}``

    The loss of a client or minibatch is divided by its number of examples, not by the sum of its weights. Averaged over
    clients by their numbers of examples, losses are then the weighted mean over all data, as in
    `torch.nn.functional.cross_entropy` with ``weight=``. Divided by the sum of weights, class weights would have no effect on
    a client with a single class.

    Attributes:
        classes: c, float64 ``[C]``; None is 1 for every class.
        mean: mean of the products over all training examples.
    """

    classes: torch.Tensor | None
    mean: float

    @classmethod
    def of(
        cls,
        y: torch.Tensor,
        weights: torch.Tensor | None,
        num_classes: int | None,
        class_weights: ClassWeights | None,
    ) -> ExampleWeights:
        """Compute the weights for training targets `y` ``[n]`` and their weights ``[n]``.

        Balanced weights are those of scikit-learn's ``compute_class_weight``, ``n / (C n_c)``, for the C classes in the data.

        Raises:
            DataError: if weights are so large or so small that their mean is not a positive number.
        """
        classes = None
        if class_weights == "balanced":
            counts = torch.bincount(y, minlength=num_classes or 0).double()
            classes = len(y) / (counts > 0).sum() / counts.clamp(min=1)
        elif class_weights is not None:
            classes = torch.tensor(class_weights, dtype=torch.float64)
        products = cls(classes, 1.0)(y, weights)
        mean = 1.0 if products is None else float(products.mean())
        if not 0.0 < mean < math.inf:
            raise DataError(
                f"weights: the mean over examples, with the weights of their classes, is {mean:g}, because they are beyond "
                "what a number can hold: divide them by the largest"
            )
        return cls(classes, mean)

    def __call__(self, y: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor | None:
        """Return the weights of examples with targets `y`, float64 ``[n]``; None if all are equal."""
        if self.classes is None:
            return None if weights is None else weights.double() / self.mean
        of_class = self.classes[y] / self.mean
        return of_class if weights is None else of_class * weights
