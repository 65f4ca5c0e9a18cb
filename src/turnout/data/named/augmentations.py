"""Define the augmentations of FedAU's experiments."""

from __future__ import annotations

from turnout.data.named.color import AdjustSharpness, ColorJitter, Equalize, Posterize
from turnout.data.transforms import AUGMENTATIONS, Normalize, RandomCrop, RandomHorizontalFlip, Transform

_NORMALIZE = Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))


def cifar_augmentation() -> tuple[Transform, ...]:
    """CIFAR-10: normalization, then a random crop of 32 x 32 out of 40 x 40 and a random horizontal flip."""
    return (_NORMALIZE, RandomCrop(32, padding=4), RandomHorizontalFlip())


def cifar100_augmentation() -> tuple[Transform, ...]:
    """CIFAR-100: random changes of color on images in [0, 1], then as for CIFAR-10.

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
    """CINIC-10: normalization, then the crop and flip of `cifar_augmentation`.

    Example:
        >>> [type(transform).__name__ for transform in cinic10_augmentation()]
        ['Normalize', 'RandomCrop', 'RandomHorizontalFlip']
    """
    normalize = Normalize(mean=(0.4789, 0.4723, 0.4305), std=(0.2421, 0.2383, 0.2587))
    return (normalize, RandomCrop(32, padding=4), RandomHorizontalFlip())


def svhn_augmentation() -> tuple[Transform, ...]:
    """SVHN: normalization, then a random crop of 32 x 32 out of 40 x 40. Digits are not flipped.

    Example:
        >>> [type(transform).__name__ for transform in svhn_augmentation()]
        ['Normalize', 'RandomCrop']
    """
    return (Normalize(mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970)), RandomCrop(32, padding=4))


AUGMENTATIONS.register(cifar_augmentation, "cifar")
AUGMENTATIONS.register(cifar100_augmentation, "cifar100")
AUGMENTATIONS.register(cinic10_augmentation, "cinic10")
AUGMENTATIONS.register(svhn_augmentation, "svhn")
