"""Transforms of minibatches: normalization, crops and flips, and how a sequence of transforms is applied.

Augmentation is random for each sample, as in torchvision with a data loader. The authors of FedAU draw one crop offset, one
flip and one color change for a whole minibatch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from turnout.core.checks import ConfigurationError, DataError, positive, refuse
from turnout.core.other_names import ExplainsArguments
from turnout.core.random import below, fold, uniform
from turnout.core.ranges import Count, Probability, Whole
from turnout.core.registry import Family


class Transform(ExplainsArguments, ABC):
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
    probability: Probability

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
    size: Count
    padding: Whole = 0

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


def apply_transforms(
    transforms: Sequence[Transform], x: torch.Tensor, keys: torch.Tensor | None, training: bool
) -> torch.Tensor:
    """Apply transforms in order; random ones only with `training`.

    The random numbers of a transform are a function of the sample's key and its index among the random transforms, so baking
    other transforms into the data does not change them.

    Args:
        transforms: may be empty.
        x: inputs ``[n, ...]``.
        keys: 64 random bits for each sample, int64 ``[n]``; may be None if no random transform is applied.
        training: apply random transforms.

    Raises:
        ConfigurationError: if transforms in training are random and there are no keys, or one changes its inputs in place.
        DataError: if a transform does not support the shape of the inputs.
    """
    number = 0
    for transform in transforms:
        if not transform.random:
            given, version = x, x._version
            x = transform.apply(x, None)
            if given._version != version:
                raise ConfigurationError(
                    f"{type(transform).__name__} changes its inputs in place, and with them the examples: return a new "
                    "tensor, such as x / 2 in place of x.div_(2)"
                )
        elif training:
            if keys is None:
                raise ConfigurationError(
                    f"{type(transform).__name__} in training needs a key for each sample, got None"
                )
            x = transform.apply(x, keys_of(keys, number))
            number += 1
    return x


def bake(
    transforms: Sequence[Transform], x: torch.Tensor, chunk: int = 4096
) -> tuple[torch.Tensor, tuple[Transform, ...]]:
    """Apply the leading transforms that are neither random nor enlarging to all inputs; return the other transforms.

    Args:
        transforms: as for `apply_transforms`.
        x: all inputs ``[n, ...]``; not changed.
        chunk: number of samples at a time, which limits temporary memory.
    """
    transforms = tuple(transforms)
    deferred = (i for i, transform in enumerate(transforms) if transform.random or transform.enlarges)
    leading = next(deferred, len(transforms))
    if leading == 0:
        return x, transforms
    first = apply_transforms(transforms[:leading], x[:chunk], None, training=False)
    baked = torch.empty((len(x), *first.shape[1:]), dtype=first.dtype, device=first.device)
    baked[:chunk] = first
    for start in range(chunk, len(x), chunk):
        part = slice(start, start + chunk)
        baked[part] = apply_transforms(transforms[:leading], x[part], None, training=False)
    return baked, transforms[leading:]


def check_transforms(transforms: Sequence[Transform]) -> None:
    """Raise an error for objects that are not transforms, and for changes of color after a normalization."""
    normalized = False
    for transform in transforms:
        if not isinstance(transform, Transform):
            hint = f"; write {transform.__name__}()" if isinstance(transform, type) else ""
            raise ConfigurationError(f"transforms: got {transform!r}, needed transforms{hint}")
        if normalized and transform.on_levels:
            name = type(transform).__name__
            raise ConfigurationError(f"{name} works on colors in [0, 1] and stands behind Normalize: write it before")
        normalized = normalized or isinstance(transform, Normalize)


AUGMENTATIONS = Family("augmentation", "augmentations", ("turnout.data.named",), returns=tuple)
"""Sequences of transforms that replace those of the data in training."""
