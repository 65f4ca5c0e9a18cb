"""Random changes of color on 256 levels, as in torchvision and Pillow on 8-bit images, and FedAU's augmentations with them.

Images are floats in [0, 1] or uint8. Floats are quantized to levels, floor(255.999 x), and results are returned as level /
255; both conversions are exact for levels, so a chain of these transforms equals one on 8-bit images. All arithmetic is on
integers, or elementwise, without convolutions, whose rounding may depend on the size of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch

from turnout.core.checks import count, refuse
from turnout.core.random import uniform
from turnout.core.ranges import NotNegative
from turnout.data.transforms import (
    AUGMENTATIONS,
    Normalize,
    Occasional,
    RandomCrop,
    RandomHorizontalFlip,
    Transform,
    check_images,
    keys_of,
)


def to_levels(x: torch.Tensor) -> torch.Tensor:
    """Return the levels 0..255 of images, int32."""
    if x.is_floating_point():
        return (x * 255.999).to(torch.int32).clamp(0, 255)
    return x.to(torch.int32)


def from_levels(levels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return images of a type from their levels: level / 255 for floats."""
    return levels.to(dtype) / 255.0 if dtype.is_floating_point else levels.to(dtype)


class OnLevels(Occasional):
    """Base class of changes of color; `changed` receives and returns levels."""

    on_levels: ClassVar[bool] = True

    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """See `Transform.apply`."""
        return from_levels(super().apply(to_levels(x), keys), x.dtype)


@dataclass(frozen=True)
class AdjustSharpness(OnLevels):
    """Sharpen (factor > 1) or smooth (factor < 1) each sample with a probability.

    With b the image blurred by the 3 x 3 mean with weight 5 of the center (13 in total, rounded)::

        x <- trunc(clip(factor * x + (1 - factor) * b, 0, 255))

    Border pixels are not changed.

    Reference: torchvision's RandomAdjustSharpness; Pillow's ImageEnhance.Sharpness.
    """

    factor: NotNegative = 2.0
    probability: float = 0.5

    def changed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the levels of all images, sharpened."""
        if min(x.shape[2:]) <= 2:
            return x
        inner = x[:, :, 1:-1, 1:-1]
        rows = x[:, :, :-2] + x[:, :, 1:-1] + x[:, :, 2:]
        total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * inner
        blurred = (2 * total + 13) // 26  # total / 13, rounded: never half-way, as 13 is odd
        sharp = x.clone()
        sharp[:, :, 1:-1, 1:-1] = (self.factor * inner + (1.0 - self.factor) * blurred).clamp(0, 255).to(torch.int32)
        return sharp


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Change brightness and hue of each sample by random amounts, in random order.

    Brightness: every level is multiplied by a factor uniform on [max(0, 1 - brightness), 1 + brightness] and clipped to
    0..255. Hue: the hue of every pixel (hexagonal, HSV) is rotated by a share of the circle uniform on [-hue, hue]; gray
    pixels and images with one channel do not change. Both are 0 by default, for no change.

    Raises:
        ConfigurationError: if brightness < 0, or hue is outside [0, 0.5].
        DataError: if images have neither 1 nor 3 channels.

    Reference: torchvision's ColorJitter.
    """

    random: ClassVar[bool] = True
    on_levels: ClassVar[bool] = True
    brightness: NotNegative = 0.0
    hue: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.hue > 0.5:
            raise refuse("hue", given=self.hue, needed="at most 0.5, half the circle")

    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """See `Transform.apply`."""
        check_images("ColorJitter", x, channels=(1, 3))
        darkest = max(0.0, 1.0 - self.brightness)
        factor = darkest + (1.0 + self.brightness - darkest) * uniform(keys_of(keys, 0))
        turn = self.hue * (2.0 * uniform(keys_of(keys, 1)) - 1.0)
        first = uniform(keys_of(keys, 2)) < 0.5
        # A factor of one changes no level, so each sample is brightened either before or after its hue is rotated.
        levels = brighten(to_levels(x), torch.where(first, factor, 1.0))
        if self.hue > 0 and x.shape[1] == 3:
            levels = turn_hue(levels, turn)
        return from_levels(brighten(levels, torch.where(first, 1.0, factor)), x.dtype)


def brighten(levels: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return levels times the factor ``[n]`` of each image, clipped to 0..255."""
    return (levels * factors.to(torch.float32).view(-1, 1, 1, 1)).clamp(0, 255).to(torch.int32)


def turn_hue(levels: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return levels of color images ``[n, 3, H, W]`` with all hues rotated by a share ``[n]`` of the circle.

    With value v = max(r, g, b), chroma c = v - min(r, g, b) and hue h in sixths of the circle, the channels are
    v - c * clip(min(k, 4 - k), 0, 1), k = (offset + h) mod 6, with offsets 5, 3 and 1 for red, green and blue.
    """
    color = levels.to(torch.float32) / 255.0
    red, green, blue = color.unbind(dim=1)
    value, least = color.amax(dim=1), color.amin(dim=1)
    chroma = value - least
    divisor = torch.where(chroma == 0, 1.0, chroma)
    hue = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2.0 + (blue - red) / divisor, 4.0 + (red - green) / divisor),
    )
    hue = hue + 6.0 * turns.to(torch.float32).view(-1, 1, 1)
    channels = []
    for offset in (5.0, 3.0, 1.0):
        k = torch.remainder(offset + hue, 6.0)
        channels.append(value - chroma * torch.minimum(k, 4.0 - k).clamp(0.0, 1.0))
    return to_levels(torch.stack(channels, dim=1))


@dataclass(frozen=True)
class Posterize(OnLevels):
    """Keep only the upper `bits` bits of each level, for each sample with a probability.

    Reference: torchvision's RandomPosterize.
    """

    bits: Annotated[int, partial(count, least=0, most=8)] = 2
    probability: float = 0.5

    def changed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the levels of all images without their lower bits."""
        return x & -(2 ** (8 - self.bits))


@dataclass(frozen=True)
class Equalize(OnLevels):
    """Spread the levels of each channel evenly over 0..255, for each sample with a probability.

    With h the histogram of a channel, and s = floor((number of pixels - pixels of the highest level present) / 255)::

        level i becomes  min(255, floor((sum_{j<i} h_j + floor(s / 2)) / s))

    and a channel with s = 0 (fewer than 255 pixels below its highest level) does not change.

    Reference: torchvision's RandomEqualize; Pillow's ImageOps.equalize.
    """

    probability: float = 0.5

    def changed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the levels of all images, equalized."""
        flat = x.flatten(2).flatten(0, 1).long()  # [n C, H W]
        histogram = torch.zeros(len(flat), 256, dtype=torch.long, device=flat.device)
        histogram.scatter_add_(1, flat, torch.ones_like(flat))
        highest = histogram.gather(1, flat.amax(dim=1, keepdim=True))
        step = (flat.shape[1] - highest) // 255
        before = histogram.cumsum(dim=1) - histogram
        table = ((before + step // 2) // step.clamp(min=1)).clamp(max=255)
        identity = torch.arange(256, device=flat.device)
        return torch.where(step == 0, identity, table).gather(1, flat).view_as(x).to(x.dtype)


OF_CIFAR10 = Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
OF_CINIC10 = Normalize(mean=(0.4789, 0.4723, 0.4305), std=(0.2421, 0.2383, 0.2587))
OF_SVHN = Normalize(mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970))


def cifar_augmentation() -> tuple[Transform, ...]:
    """CIFAR-10: normalization, then a random crop of 32 x 32 out of 40 x 40 and a random horizontal flip."""
    return (OF_CIFAR10, RandomCrop(32, padding=4), RandomHorizontalFlip())


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
    return (OF_CINIC10, RandomCrop(32, padding=4), RandomHorizontalFlip())


def svhn_augmentation() -> tuple[Transform, ...]:
    """SVHN: normalization, then a random crop of 32 x 32 out of 40 x 40. Digits are not flipped.

    Example:
        >>> [type(transform).__name__ for transform in svhn_augmentation()]
        ['Normalize', 'RandomCrop']
    """
    return (OF_SVHN, RandomCrop(32, padding=4))


AUGMENTATIONS.register(cifar_augmentation, "cifar")
AUGMENTATIONS.register(cifar100_augmentation, "cifar100")
AUGMENTATIONS.register(cinic10_augmentation, "cinic10")
AUGMENTATIONS.register(svhn_augmentation, "svhn")
