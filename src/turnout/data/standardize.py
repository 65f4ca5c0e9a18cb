"""Standardize every entry of the inputs, as FedProx does with the pixels of MNIST."""

from __future__ import annotations

from dataclasses import replace

import torch

from turnout.core.checks import DataError, positive
from turnout.data.source import Source


def standardized(source: Source, epsilon: float = 0.001) -> Source:
    """Standardize every entry of the inputs (every pixel) over all examples, including the official test.

    With mean and standard deviation of entry j over all examples::

        x_j <- (x_j - mean_j) / (std_j + epsilon)

    A constant entry becomes 0. `Source.transforms` are removed, because they expect the original scale.

    Args:
        source: the data, with floating-point inputs.
        epsilon: added to each standard deviation, in units of the inputs, > 0.

    Raises:
        ConfigurationError: if epsilon <= 0.
        DataError: if inputs are integers.
    """
    positive("epsilon", epsilon)
    if not source.x.is_floating_point():
        raise DataError(
            f"{source.name}: inputs of type {source.x.dtype} cannot be standardized: make them floats first"
        )
    parts = [source.x] if source.test_x is None else [source.x, source.test_x]
    n = sum(map(len, parts))
    # Double precision, because the mean of a pixel that is black in almost all images is tiny.
    mean = (_sum(parts) / n).to(source.x.dtype)
    centered = [part - mean for part in parts]
    variance = _sum([part.square() for part in centered]) / n
    scale = (variance.sqrt() + epsilon).to(source.x.dtype)
    x, *test = [part.div_(scale) for part in centered]
    recipe = {**source.recipe, "standardize": True}
    return replace(source, x=x, test_x=test[0] if test else None, transforms=(), prepare=None, recipe=recipe)


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum over all examples of all parts, float64."""
    return torch.stack([part.sum(dim=0, dtype=torch.float64) for part in parts]).sum(dim=0)
