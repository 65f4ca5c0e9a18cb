"""Replace batch normalization by group normalization."""

from __future__ import annotations

import copy
import math
from typing import Any

from torch import nn

from turnout.core.checks import count, counted
from turnout.engine.batch_norm import BATCH_NORMS
from turnout.engine.plain_layers import check_plain, with_layers


def group_norm(module: nn.Module, groups: int = 32, *, tell: bool = True) -> nn.Module:
    """Return a copy of a module with GroupNorm in place of BatchNorm, and print which layers these are.

    Statistics are those of single examples and not of minibatches, so that clients have none to average. A layer's weights
    and biases stay; running statistics are dropped, so a network that was trained with them has to be trained further. A
    layer has as many groups as divide both its channels and `groups`, of two channels or more.

    Args:
        module: the module, which is not changed.
        groups: the most groups a layer gets (32 in the paper).
        tell: print the layers.

    Raises:
        ConfigurationError: if a layer is of a subclass with methods of its own, which GroupNorm would lose.

    Reference: Wu and He, "Group normalization", ECCV 2018.

    Example:
        >>> from torch import nn
        >>> module = group_norm(nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU()), groups=8)
        replaced 1 BatchNorm layer by GroupNorm: 1 (12 channels in 4 groups)
        >>> type(module[1]).__name__
        'GroupNorm'
    """
    count("groups", groups)
    module, done = copy.deepcopy(module), []
    layers: list[tuple[str, Any]] = [
        (name, layer) for name, layer in module.named_modules(remove_duplicate=False) if isinstance(layer, BATCH_NORMS)
    ]
    for name, layer in layers:
        check_plain(name, layer, BATCH_NORMS, "GroupNorm", "write GroupNorm and what the class adds in its place")
    module, _ = with_layers(module, layers, lambda layer, _: _of_groups(layer, groups))
    for name, _ in layers:
        new: Any = module.get_submodule(name)
        done.append(f"{name or 'the module'} ({new.num_channels} channels in {counted(new.num_groups, 'group')})")
    if tell:
        print(f"replaced {counted(len(done), 'BatchNorm layer')} by GroupNorm{': ' if done else ''}{', '.join(done)}")
    return module


def _of_groups(layer: Any, groups: int) -> nn.GroupNorm:
    """Return the GroupNorm that takes the place of a BatchNorm, with its weights and biases."""
    channels = layer.num_features
    parts = math.gcd(groups, channels)
    while parts > 1 and channels // parts < 2:
        parts = max(number for number in range(1, parts) if channels % number == 0)
    new = nn.GroupNorm(parts, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        new.weight, new.bias = layer.weight, layer.bias
    return new.train(layer.training)
