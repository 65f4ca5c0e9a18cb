"""Classify texts with a stacked LSTM over the vectors of their words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from turnout.core.checks import refuse
from turnout.core.ranges import Count, NotNegative
from turnout.models.lstm import Lstm
from turnout.models.spec import ModelSpec


@dataclass(frozen=True)
class TextLstm(ModelSpec, name="text_lstm"):
    """Classifies a text from the vectors of its words: stacked LSTM, linear layer on the last output, then logits.

    The defaults are the network that FedProx and FOLB use for Sent140, on 25 words of 300 numbers: between the LSTM and
    the logits is a layer of 30 without a nonlinearity. It has C logits where theirs has one, which for two classes is the
    same family of functions. Word vectors come with the data (`turnout.data.WordVectors`) and are not trained.

    Attributes:
        hidden: width H of each LSTM layer.
        layers: number of LSTM layers.
        dense: width of the linear layer on the last output.
        forget_bias: see `turnout.models.lstm.Lstm`; theirs is 1. Most texts are shorter than T words, and the
            state at the last of them has to outlast the zeros behind it.

    Raises:
        ConfigurationError: if sizes are not whole numbers >= 1, or `forget_bias` < 0. `build` refuses inputs that are
            not ``(T, D)``.

    Example:
        >>> import torch, turnout as to
        >>> network = to.models.TextLstm(hidden=16).build(input_shape=(25, 300), num_classes=2)
        >>> network(torch.zeros(4, 25, 300)).shape
        torch.Size([4, 2])

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, and the authors' code.
    """

    hidden: Count = 100
    layers: Count = 2
    dense: Count = 30
    forget_bias: NotNegative = 1.0

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a `TextClassifier` of texts of T words with D numbers each."""
        if len(input_shape) != 2:
            raise refuse(
                "input_shape of TextLstm",
                given=input_shape,
                needed="(T, D), the vectors of T words",
                instead="For averaged vectors write Mlp(); for characters, CharLstm()",
            )
        return TextClassifier(input_shape[1], num_classes, self)


class TextClassifier(nn.Module):
    """Vectors ``[M, T, D]`` to logits ``[M, C]``."""

    def __init__(self, dimension: int, num_classes: int, options: TextLstm) -> None:
        super().__init__()
        self.lstm = Lstm(dimension, options.hidden, options.layers, options.forget_bias)
        self.dense = nn.Linear(options.hidden, options.dense)
        self.output = nn.Linear(options.dense, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits from the output at the last word."""
        return self.output(self.dense(self.lstm(x.transpose(0, 1))[-1]))
