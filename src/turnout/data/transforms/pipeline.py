"""Apply and check sequences of transforms."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family
from turnout.data.transforms.base import Transform, keys_of
from turnout.data.transforms.normalize import Normalize


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
