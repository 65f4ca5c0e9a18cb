"""Transforms one after the other: applying and checking them, and the augmentations of FedAU's experiments."""

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
    """Return a batch after all transforms, in order; the random ones are skipped unless `training`.

    Each random transform has its own numbers from a sample's key, by its place among the random ones: what has been
    baked into the data beforehand changes nothing.

    Args:
        transforms: may be empty.
        x: inputs ``[n, ...]``.
        keys: 64 random bits for each sample, int64 ``[n]``; may be None where nothing random is applied.
        training: whether random transforms apply.

    Raises:
        ConfigurationError: for random transforms in training without keys.
        DataError: for inputs of a shape that a transform does not take.
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
    """Apply the leading transforms that are neither random nor enlarging once and for all; return those that remain.

    Args:
        transforms: as for `apply_transforms`.
        x: all inputs ``[n, ...]``; not changed.
        chunk: how many samples at a time, which bounds the memory besides the result's own.
    """
    transforms = tuple(transforms)
    waits = (i for i, transform in enumerate(transforms) if transform.random or transform.enlarges)
    leading = next(waits, len(transforms))
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
    """Refuse what is no transform, and changes of colour behind a normalisation, whose results are no colours."""
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
    """CIFAR-10: normalised, then a crop of 32 x 32 out of 40 x 40 and a horizontal flip, random for each sample."""
    return (_NORMALISE, RandomCrop(32, padding=4), RandomHorizontalFlip())


def cifar100_augmentation() -> tuple[Transform, ...]:
    """CIFAR-100: changes of colour on images in [0, 1], then as for CIFAR-10; random for each sample.

    The probabilities are torchvision's defaults, 0.5 each; the jitter always applies.
    """
    return (
        AdjustSharpness(factor=2.0),
        ColorJitter(brightness=0.05, hue=0.05),
        Posterize(bits=2),
        Equalize(),
        *cifar_augmentation(),
    )


AUGMENTATIONS = Family("augmentation", "augmentations", ("turnout.data.transforms",), returns=tuple)
"""Transforms of training images that go in place of the data's own."""

AUGMENTATIONS.register(cifar_augmentation, "cifar")
AUGMENTATIONS.register(cifar100_augmentation, "cifar100")
