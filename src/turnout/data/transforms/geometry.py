"""Random crops and flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from turnout.core.checks import DataError, count
from turnout.core.random import below
from turnout.data.transforms.base import Occasional, Transform, check_images, keys_of


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Crop a random window of ``size x size`` pixels, after `padding` zeros on each side.

    The offset of each sample is uniform over all windows in the image. After `Normalize`, zeros are the mean color, as in
    FedAU's code.

    Attributes:
        size: height and width of the window.
        padding: pixels of zeros added on each side first.

    Raises:
        DataError: if padded images are smaller than the window.
    """

    random: ClassVar[bool] = True
    size: int
    padding: int = 0

    def __post_init__(self) -> None:
        count("size", self.size)
        count("padding", self.padding, least=0)

    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """See `Transform.apply`."""
        check_images("RandomCrop", x)
        padded = F.pad(x, [self.padding] * 4)
        places = [extent - self.size + 1 for extent in padded.shape[2:]]
        if min(places) < 1:
            raise DataError(
                f"RandomCrop(size={self.size}, padding={self.padding}) does not fit into images of shape {list(x.shape[1:])}"
            )
        top, left = (below(keys_of(keys, axis), places[axis]) for axis in (0, 1))
        windows = padded.unfold(2, self.size, 1).unfold(3, self.size, 1)
        return windows[torch.arange(len(x), device=x.device), :, top, left]


@dataclass(frozen=True)
class RandomHorizontalFlip(Occasional):
    """Flip each sample horizontally with a probability."""

    probability: float = 0.5

    def changed(self, x: torch.Tensor) -> torch.Tensor:
        """Return all images, flipped."""
        return x.flip(-1)
