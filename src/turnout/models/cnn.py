"""Convolutional networks for images, among them those of FedAU."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from turnout.models.spec import ModelSpec, dropout_rate, images, sizes


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
    dropout: float = 0.0
    channels: int | tuple[int, ...] = 32

    def __post_init__(self) -> None:
        sizes("hidden", self.hidden, least=0, instead="Write hidden=(128,), or () for no hidden layer")
        sizes("channels", self.widths, instead="Write channels=32, or one number per convolution: (32, 64)")
        dropout_rate("dropout", self.dropout)

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
