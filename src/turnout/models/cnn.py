"""Convolutional networks for images: those of FedAU, and of FedStaleWeight with group normalization."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from turnout.core.checks import refuse
from turnout.core.ranges import Count
from turnout.models.spec import DropoutRate, ModelSpec, dropout_rate, images, sizes


@dataclass(frozen=True)
class Cnn(ModelSpec, name="cnn"):
    """Blocks of convolution (3 x 3, padding 1), ReLU and max-pooling (2 x 2), then fully connected layers with ReLU.

    All layers but the last start from Kaiming-normal weights (variance 2 / fan-in) and zero biases, the last one from
    PyTorch's default. The networks of FedAU have a name each: `svhn`, `cifar10`, `cifar100`, `cinic10` and
    `fashion_mnist`. ``Cnn(hidden=(), channels=(32, 64))`` is the convolutional network of FOLB's MNIST figures.

    Attributes:
        hidden: width of each hidden fully connected layer; may be empty.
        dropout: probability, in training, of dropping an input of any fully connected layer.
        channels: number of channels of each convolution; one number stands for two convolutions of that many channels.

    Raises:
        ConfigurationError: if `hidden` or `channels` hold anything but whole numbers >= 1, there is no convolution, or
            `dropout` is outside [0, 1). `build` refuses images that are not ``(channels, height, width)`` or too small.

    Example:
        >>> import torch, turnout as to
        >>> network = to.models.Cnn(hidden=(32,), channels=(8, 16)).build(input_shape=(1, 8, 8), num_classes=10)
        >>> network(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])

    Reference: Wang and Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging",
    ICLR 2024, appendix C.3.
    """

    hidden: tuple[int, ...] = (128,)
    dropout: DropoutRate = 0.0
    channels: int | tuple[int, ...] = 32

    def __post_init__(self) -> None:
        sizes("hidden", self.hidden, least=0, instead="Write hidden=(128,), or () for no hidden layer")
        sizes("channels", self.widths, instead="Write channels=32, or one number per convolution: (32, 64)")

    @classmethod
    def svhn(cls) -> Cnn:
        """FedAU's network for SVHN: 273,706 parameters on 3 x 32 x 32 images of 10 classes."""
        return cls(hidden=(128,))

    @classmethod
    def cifar10(cls) -> Cnn:
        """FedAU's network for CIFAR-10: 551,786 parameters on 3 x 32 x 32 images of 10 classes."""
        return cls(hidden=(256, 64))

    @classmethod
    def cifar100(cls) -> Cnn:
        """FedAU's network for CIFAR-100: 1,216,260 parameters on 3 x 32 x 32 images of 100 classes."""
        return cls(hidden=(512, 256), dropout=0.2)

    @classmethod
    def cinic10(cls) -> Cnn:
        """FedAU's network for CINIC-10: 1,193,130 parameters on 3 x 32 x 32 images of 10 classes."""
        return cls(hidden=(512, 256), dropout=0.2)

    @classmethod
    def fashion_mnist(cls) -> Cnn:
        """Return the network for Fashion-MNIST in FedAU's code: 211,690 parameters on 1 x 28 x 28 images of 10 classes."""
        return cls(hidden=(128,))

    @property
    def widths(self) -> tuple[int, ...]:
        """Output channels of each convolution."""
        return self.channels if isinstance(self.channels, tuple) else (self.channels, self.channels)

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Convolutions ``conv1``, ..., hidden layers ``hidden1``, ..., then ``output``."""
        width, height, breadth = images("Cnn", input_shape, len(self.widths), fewer="convolutions")
        parts = OrderedDict[str, nn.Module]()
        for i, wider in enumerate(self.widths, start=1):
            parts[f"conv{i}"] = nn.Conv2d(width, wider, kernel_size=3, padding=1)
            # ReLU and maximum commute, values and gradients alike; after the pooling ReLU has a quarter of the work.
            parts[f"pool{i}"] = nn.MaxPool2d(2)
            parts[f"conv_relu{i}"] = nn.ReLU()
            width, height, breadth = wider, height // 2, breadth // 2
        parts["flatten"] = nn.Flatten()
        width *= height * breadth
        for i, wider in enumerate(self.hidden, start=1):
            if self.dropout:
                parts[f"dropout{i}"] = nn.Dropout(self.dropout)
            parts[f"hidden{i}"] = nn.Linear(width, wider)
            parts[f"relu{i}"] = nn.ReLU()
            width = wider
        if self.dropout:
            parts["dropout"] = nn.Dropout(self.dropout)
        for layer in parts.values():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.constant_(layer.get_parameter("bias"), 0.0)
        parts["output"] = nn.Linear(width, num_classes)
        return nn.Sequential(parts)


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
    hidden_dropout: DropoutRate = 0.5

    def __post_init__(self) -> None:
        sizes("channels", self.channels, instead="Write the channels of each block: (32, 64)")
        if any(width % 4 for width in (*self.channels, self.hidden)):
            raise refuse("channels and hidden", given=(self.channels, self.hidden), needed="multiples of 4")
        if not isinstance(self.dropout, tuple) or len(self.dropout) != len(self.channels):
            raise refuse("dropout", given=self.dropout, needed=f"a tuple of {len(self.channels)}, one for each block")
        for rate in self.dropout:
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
