"""Define the base class of transforms, and the random numbers of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from turnout.core.checks import DataError, probability
from turnout.core.random import fold, uniform


class Transform(ABC):
    """Base class of transforms of batches of inputs; a frozen dataclass of plain options.

    The result for a sample is a function of the sample and its key, bit for bit, independent of the rest of the batch.
    """

    random: ClassVar[bool]
    """True for random transforms, which are applied only in training."""

    enlarges: ClassVar[bool] = False
    """True if outputs take much more memory than inputs, so that the transform is applied to each minibatch."""

    on_levels: ClassVar[bool] = False
    """True for changes of color, whose inputs are in [0, 1] and so not yet normalized."""

    @abstractmethod
    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """Return the transformed batch, a new tensor.

        Args:
            x: inputs, usually images ``[n, C, H, W]``.
            keys: 64 random bits for each sample, int64 ``[n]``, on the device of `x`; None for transforms that are not
                random.

        Raises:
            DataError: if inputs have an unsupported shape.
        """


class Occasional(Transform):
    """Base class of transforms that change each sample with a probability."""

    random: ClassVar[bool] = True
    probability: float

    def __post_init__(self) -> None:
        probability("probability", self.probability)

    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """See `Transform.apply`."""
        check_images(type(self).__name__, x)
        return torch.where(chosen(keys, 0, self.probability), self.changed(x), x)

    @abstractmethod
    def changed(self, x: torch.Tensor) -> torch.Tensor:
        """Return all samples of a batch, changed."""


def keys_of(keys: torch.Tensor | None, number: int) -> torch.Tensor:
    """Return the keys of one of several draws of each sample."""
    assert keys is not None, "a random transform needs keys"
    return fold(keys, torch.full_like(keys, number))


def chosen(keys: torch.Tensor | None, number: int, probability: float) -> torch.Tensor:
    """Draw a Bernoulli mask of samples, bool ``[n, 1, 1, 1]``."""
    return (uniform(keys_of(keys, number)) < probability).view(-1, 1, 1, 1)


def check_images(name: str, x: torch.Tensor, channels: tuple[int, ...] = ()) -> None:
    """Check that inputs are a batch of images, with one of the numbers of `channels` if there are any."""
    if x.ndim != 4 or (channels and x.shape[1] not in channels):
        colors = f" with C = {' or '.join(map(str, channels))}" if channels else ""
        raise DataError(f"{name} needs images [n, C, H, W]{colors}, got inputs of shape {list(x.shape)}")
