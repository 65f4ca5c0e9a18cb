"""Shift and scale each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.core.checks import DataError, positive, refuse
from turnout.data.transforms.base import Transform


@dataclass(frozen=True)
class Normalize(Transform):
    """Shift and scale each channel, ``x <- (x - mean) / std``.

    Images of type uint8 are first divided by 255, so that mean and std are always on the scale [0, 1].

    Attributes:
        mean: one number per channel, or a single number for inputs of any shape.
        std: standard deviations in the same form, > 0.

    Raises:
        ConfigurationError: if a std is <= 0, or tuples differ in length.
        DataError: if inputs have another number of channels.
    """

    random: ClassVar[bool] = False
    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        for value in self.std if isinstance(self.std, tuple) else (self.std,):
            positive("std", value)
        if isinstance(self.mean, tuple) and isinstance(self.std, tuple) and len(self.mean) != len(self.std):
            raise refuse("std", given=self.std, needed=f"as many numbers as the mean has, {len(self.mean)}")

    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """See `Transform.apply`; with a single number inputs may have any shape ``[n, ...]``."""
        if x.dtype == torch.uint8:
            x = x.to(torch.float32) / 255.0
        return (x - self._like(x, self.mean)) / self._like(x, self.std)

    def _like(self, x: torch.Tensor, value: float | tuple[float, ...]) -> torch.Tensor | float:
        """Return a number, or numbers per channel in a shape that broadcasts against `x`."""
        if not isinstance(value, tuple):
            return value
        if x.ndim < 2 or x.shape[1] != len(value):
            raise DataError(f"Normalize has {len(value)} channels, got inputs of shape {list(x.shape)}")
        return torch.tensor(value, dtype=x.dtype, device=x.device).view(-1, *[1] * (x.ndim - 2))
