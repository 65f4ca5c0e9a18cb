"""Transforms of minibatches: normalisation, random augmentation and word vectors.

Augmentation is random for each sample, as in torchvision with a data loader. The authors of FedAU draw one crop offset, one
flip and one colour change for a whole minibatch.
"""

from turnout.data.transforms.base import Transform as Transform
from turnout.data.transforms.colour import AdjustSharpness as AdjustSharpness
from turnout.data.transforms.colour import ColorJitter as ColorJitter
from turnout.data.transforms.colour import Equalize as Equalize
from turnout.data.transforms.colour import Posterize as Posterize
from turnout.data.transforms.geometry import RandomCrop as RandomCrop
from turnout.data.transforms.geometry import RandomHorizontalFlip as RandomHorizontalFlip
from turnout.data.transforms.normalise import Normalise as Normalise
from turnout.data.transforms.pipeline import apply_transforms as apply_transforms
from turnout.data.transforms.pipeline import bake as bake
from turnout.data.transforms.pipeline import check_transforms as check_transforms
from turnout.data.transforms.pipeline import cifar100_augmentation as cifar100_augmentation
from turnout.data.transforms.pipeline import cifar_augmentation as cifar_augmentation
from turnout.data.transforms.pipeline import cinic10_augmentation as cinic10_augmentation
from turnout.data.transforms.pipeline import svhn_augmentation as svhn_augmentation
from turnout.data.transforms.word_vectors import WordVectors as WordVectors
