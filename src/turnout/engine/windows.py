"""Compute convolutions of images with few channels as products with their windows, which is faster on GPUs."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.nn.functional import pad

from turnout.engine.plain_layers import is_plain

DEVICES = {"cuda"}
"""Devices on which the first convolution of a network is computed in this way."""

_MOST_COPIES = 40
"""Limit of the numbers that windows hold for each position of an image: 25 and 27 are faster on a GPU, and 288 are slower."""


class WindowedConv2d(nn.Conv2d):
    """Convolve in training by one product of the weights and all windows of each image: ``y = W windows(x) + b``.

    Grouped convolutions of many clients have no fast kernel on a GPU for images with one or three channels. The gradient of
    the weights is summed over the images last, so that all of these products run at the same time. Evaluations, which need
    no gradients and have large batches, use PyTorch's convolution, and so do clients that are computed one by one.
    """

    alone = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return ``[b, O, H', W']`` for images ``[b, C, H, W]``."""
        if self.alone or not self.training or input.dim() != 4:
            return super().forward(input)
        (height, width), (down, right), (rows, columns) = self.kernel_size, self.stride, self.padding
        margins = cast("list[int]", [columns, columns, rows, rows])  # numbers, see `_is_faster`
        windows = pad(input, margins).unfold(2, height, down).unfold(3, width, right)
        shape = windows.shape[2:4]
        windows = windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)
        outputs = torch.bmm(self.weight.flatten(1).expand(len(input), -1, -1), windows)
        if self.bias is not None:
            outputs = outputs + self.bias[:, None]
        return outputs.unflatten(2, shape)


def use_windows(module: nn.Module, device: torch.device) -> None:
    """Compute the layers of a module in this way, in place, if that is faster on the device."""
    if device.type not in DEVICES:
        return
    for layer in module.modules():
        if type(layer) is nn.Conv2d and is_plain(layer, (nn.Conv2d,)) and _is_faster(layer):
            layer.__class__ = WindowedConv2d


def _is_faster(layer: nn.Conv2d) -> bool:
    """Return whether windows hold few numbers for each position of an image, and are those of zero padding."""
    copies = layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1] / (layer.stride[0] * layer.stride[1])
    usual = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return usual and layer.groups == 1 and layer.dilation == (1, 1) and copies <= _MOST_COPIES
