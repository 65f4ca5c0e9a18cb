"""The base class of transforms, and the random numbers of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from turnout.core.checks import DataError
from turnout.core.random import fold, uniform


class Transform(ABC):
    """Base class of transforms, which change a batch of inputs sample by sample; a frozen dataclass of plain options.

    What a sample becomes depends on the sample and its key alone, bit for bit, whatever else is in the batch.
    """

    random: ClassVar[bool]
    """True where it draws random numbers, and so belongs to training only."""

    enlarges: ClassVar[bool] = False
    """True where inputs take much more memory behind it, so that it waits for each minibatch even if it is not random."""

    @abstractmethod
    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """Return the transformed batch, a new tensor.

        Args:
            x: inputs, most often images ``[n, C, H, W]``.
            keys: 64 random bits for each sample, int64 ``[n]``, on the device of `x`; None for what is not random.

        Raises:
            DataError: for inputs of a shape that this transform does not take.
        """


def keys_of(keys: torch.Tensor | None, number: int) -> torch.Tensor:
    """Return the keys of one of several draws of each sample."""
    assert keys is not None, "a random transform needs keys"
    return fold(keys, torch.full_like(keys, number))


def chosen(keys: torch.Tensor | None, number: int, probability: float) -> torch.Tensor:
    """Draw the samples that a change of that probability happens to, bool ``[n, 1, 1, 1]``."""
    return (uniform(keys_of(keys, number)) < probability).view(-1, 1, 1, 1)


def check_images(name: str, x: torch.Tensor, channels: tuple[int, ...] = ()) -> None:
    """Refuse what is not a batch of images, with one of `channels` channels if any are given."""
    if x.ndim != 4 or (channels and x.shape[1] not in channels):
        colours = f" with C = {' or '.join(map(str, channels))}" if channels else ""
        raise DataError(f"{name} needs images [n, C, H, W]{colours}, got inputs of shape {list(x.shape)}")
