"""Transforms of minibatches: normalization, crops and flips, and how a sequence of transforms is applied.

Augmentation is random for each sample, as in torchvision with a data loader. The authors of FedAU draw one crop offset, one
flip and one color change for a whole minibatch.
"""

from turnout.data.transforms.base import Transform as Transform
from turnout.data.transforms.geometry import RandomCrop as RandomCrop
from turnout.data.transforms.geometry import RandomHorizontalFlip as RandomHorizontalFlip
from turnout.data.transforms.normalize import Normalize as Normalize
from turnout.data.transforms.pipeline import apply_transforms as apply_transforms
from turnout.data.transforms.pipeline import bake as bake
from turnout.data.transforms.pipeline import check_transforms as check_transforms
