"""The convolutional networks of FedStaleWeight, with group normalization."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from turnout.core.checks import refuse
from turnout.core.ranges import Count
from turnout.models.spec import ModelSpec, dropout_rate, images, sizes


@dataclass(frozen=True)
class GroupNormCnn(ModelSpec, name="group_norm_cnn"):
    """Blocks of two convolutions (3 x 3, padding 1), pooling (2 x 2) and dropout of whole channels; one hidden layer.

    ReLU and then group normalization, with four channels in a group, follow every convolution and the hidden layer.
    FedStaleWeight's network for Fashion-MNIST is the default (468,458 parameters on 1 x 28 x 28 images of 10 classes);
    the one for CIFAR-10 is `cifar10`. Weights start as PyTorch has it.

    Attributes:
        channels: numbers of channels of the two convolutions of each block, multiples of 4.
        dropout: after each block, the probability of dropping a channel.
        hidden: width of the hidden layer, a multiple of 4.
        hidden_dropout: probability of dropping one of its outputs.

    Raises:
        ConfigurationError: if a number is out of range, or there is not one dropout for each block. `build` refuses
            images that are not ``(channels, height, width)`` or too small.

    Example:
        >>> import turnout as to
        >>> network = to.models.GroupNormCnn().build(input_shape=(1, 28, 28), num_classes=10)
        >>> sum(p.numel() for p in network.parameters())
        468458

    Reference: Ma et al., "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness
    reweighting", 2024.
    """

    channels: tuple[int, ...] = (32, 64)
    dropout: tuple[float, ...] = (0.3, 0.5)
    hidden: Count = 128
    hidden_dropout: float = 0.5

    def __post_init__(self) -> None:
        sizes("channels", self.channels, instead="Write the channels of each block: (32, 64)")
        if any(width % 4 for width in (*self.channels, self.hidden)):
            raise refuse("channels and hidden", given=(self.channels, self.hidden), needed="multiples of 4")
        if not isinstance(self.dropout, tuple) or len(self.dropout) != len(self.channels):
            raise refuse("dropout", given=self.dropout, needed=f"a tuple of {len(self.channels)}, one for each block")
        for rate in (*self.dropout, self.hidden_dropout):
            dropout_rate("dropout", rate)

    @classmethod
    def cifar10(cls) -> GroupNormCnn:
        """FedStaleWeight's network for CIFAR-10: 551,722 parameters on 3 x 32 x 32 images of 10 classes."""
        return cls(channels=(32, 64, 128), dropout=(0.3, 0.5, 0.5))

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Blocks ``conv1a``, ``conv1b``, ..., then ``hidden`` and ``output``."""
        width, height, breadth = images("GroupNormCnn", input_shape, len(self.channels), fewer="blocks")
        parts = OrderedDict[str, nn.Module]()
        for i, (wider, rate) in enumerate(zip(self.channels, self.dropout, strict=True), start=1):
            for letter in "ab":
                parts[f"conv{i}{letter}"] = nn.Conv2d(width, wider, kernel_size=3, padding=1)
                parts[f"relu{i}{letter}"] = nn.ReLU()
                parts[f"norm{i}{letter}"] = nn.GroupNorm(wider // 4, wider)
                width = wider
            parts[f"pool{i}"] = nn.MaxPool2d(2)
            if rate:
                parts[f"dropout{i}"] = nn.Dropout2d(rate)
            height, breadth = height // 2, breadth // 2
        parts["flatten"] = nn.Flatten()
        parts["hidden"] = nn.Linear(width * height * breadth, self.hidden)
        parts["relu"] = nn.ReLU()
        parts["norm"] = nn.GroupNorm(self.hidden // 4, self.hidden)
        if self.hidden_dropout:
            parts["dropout"] = nn.Dropout(self.hidden_dropout)
        parts["output"] = nn.Linear(self.hidden, num_classes)
        return nn.Sequential(parts)
