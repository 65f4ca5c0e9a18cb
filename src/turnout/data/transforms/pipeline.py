"""Apply and check sequences of transforms, and define the augmentations of FedAU's experiments."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family
from turnout.data.transforms.base import Transform, keys_of
from turnout.data.transforms.colour import AdjustSharpness, ColorJitter, Equalize, Posterize
from turnout.data.transforms.geometry import RandomCrop, RandomHorizontalFlip
from turnout.data.transforms.normalise import Normalise


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
        ConfigurationError: if transforms in training are random and there are no keys.
        DataError: if a transform does not support the shape of the inputs.
    """
    number = 0
    for transform in transforms:
        if not transform.random:
            x = transform.apply(x, None)
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
    """Raise an error for objects that are not transforms, and for changes of colour after a normalisation."""
    normalised = False
    for transform in transforms:
        if not isinstance(transform, Transform):
            hint = f"; write {transform.__name__}()" if isinstance(transform, type) else ""
            raise ConfigurationError(f"transforms: got {transform!r}, needed transforms{hint}")
        if normalised and isinstance(transform, AdjustSharpness | ColorJitter | Posterize | Equalize):
            name = type(transform).__name__
            raise ConfigurationError(f"{name} works on colours in [0, 1] and stands behind Normalise: write it before")
        normalised = normalised or isinstance(transform, Normalise)


_NORMALISE = Normalise(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))


def cifar_augmentation() -> tuple[Transform, ...]:
    """CIFAR-10: normalisation, then a random crop of 32 x 32 out of 40 x 40 and a random horizontal flip."""
    return (_NORMALISE, RandomCrop(32, padding=4), RandomHorizontalFlip())


def cifar100_augmentation() -> tuple[Transform, ...]:
    """CIFAR-100: random changes of colour on images in [0, 1], then as for CIFAR-10.

    The probabilities are torchvision's defaults, 0.5 each; the jitter is always applied.
    """
    return (
        AdjustSharpness(factor=2.0),
        ColorJitter(brightness=0.05, hue=0.05),
        Posterize(bits=2),
        Equalize(),
        *cifar_augmentation(),
    )


def cinic10_augmentation() -> tuple[Transform, ...]:
    """CINIC-10: normalisation, then the crop and flip of `cifar_augmentation`.

    Example:
        >>> [type(transform).__name__ for transform in cinic10_augmentation()]
        ['Normalise', 'RandomCrop', 'RandomHorizontalFlip']
    """
    normalise = Normalise(mean=(0.4789, 0.4723, 0.4305), std=(0.2421, 0.2383, 0.2587))
    return (normalise, RandomCrop(32, padding=4), RandomHorizontalFlip())


def svhn_augmentation() -> tuple[Transform, ...]:
    """SVHN: normalisation, then a random crop of 32 x 32 out of 40 x 40. Digits are not flipped.

    Example:
        >>> [type(transform).__name__ for transform in svhn_augmentation()]
        ['Normalise', 'RandomCrop']
    """
    return (Normalise(mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970)), RandomCrop(32, padding=4))


AUGMENTATIONS = Family("augmentation", "augmentations", ("turnout.data.transforms",), returns=tuple)
"""Sequences of transforms that replace those of the data in training."""

AUGMENTATIONS.register(cifar_augmentation, "cifar")
AUGMENTATIONS.register(cifar100_augmentation, "cifar100")
AUGMENTATIONS.register(cinic10_augmentation, "cinic10")
AUGMENTATIONS.register(svhn_augmentation, "svhn")
