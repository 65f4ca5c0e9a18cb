"""The augmentation of FedAU's experiments."""

from __future__ import annotations

from turnout.core.registry import Family
from turnout.data.transforms.base import Transform
from turnout.data.transforms.colour import AdjustSharpness, ColorJitter, Equalize, Posterize
from turnout.data.transforms.geometry import RandomCrop, RandomHorizontalFlip
from turnout.data.transforms.normalise import Normalise

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
