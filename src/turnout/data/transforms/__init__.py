"""Transforms of minibatches: normalisation, augmentation (random for each sample, from its key) and word vectors.

The authors of FedAU draw one crop offset, one flip and one colour change for a whole minibatch; here every sample has its
own, as torchvision has it in a data loader.
"""

from turnout.data.transforms.base import Transform
from turnout.data.transforms.colour import AdjustSharpness, ColorJitter, Equalize, Posterize
from turnout.data.transforms.geometry import RandomCrop, RandomHorizontalFlip
from turnout.data.transforms.normalise import Normalise
from turnout.data.transforms.pipeline import (
    apply_transforms,
    bake,
    check_transforms,
    cifar100_augmentation,
    cifar_augmentation,
)
from turnout.data.transforms.word_vectors import WordVectors

__all__ = [
    "AdjustSharpness",
    "ColorJitter",
    "Equalize",
    "Normalise",
    "Posterize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "Transform",
    "WordVectors",
    "apply_transforms",
    "bake",
    "check_transforms",
    "cifar100_augmentation",
    "cifar_augmentation",
]
