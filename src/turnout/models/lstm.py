"""A stacked LSTM that can be batched over clients; next-character prediction and classification of texts with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from turnout.core.checks import refuse
from turnout.core.ranges import Count, NotNegative
from turnout.models.recurrence import Recurrence
from turnout.models.spec import ModelSpec


@dataclass(frozen=True)
class CharLstm(ModelSpec, name="char_lstm"):
    """Predicts the next character from the ones before: embedding, stacked LSTM, linear layer on the last output.

    The defaults are the network that LEAF and FedProx use for Shakespeare, on 80 characters of context. Inputs are
    character indices 0..C-1 of any integer type, ``[M, T]``; characters and classes are the same C symbols.

    Attributes:
        embedding: numbers that stand for a character.
        hidden: width H of each LSTM layer.
        layers: number of LSTM layers.
        forget_bias: see `Lstm`. LEAF and FedProx have TensorFlow's 1; 0 is as PyTorch starts.

    Raises:
        ConfigurationError: if sizes are not whole numbers >= 1, or `forget_bias` < 0. `build` refuses inputs that are
            not ``(T,)``.

    Example:
        >>> import torch, turnout as to
        >>> network = to.models.CharLstm(hidden=16).build(input_shape=(80,), num_classes=90)
        >>> network(torch.zeros(2, 80, dtype=torch.int64)).shape
        torch.Size([2, 90])

    References: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018; Li et al., "Federated Optimization in
    Heterogeneous Networks", MLSys 2020.
    """

    embedding: Count = 8
    hidden: Count = 256
    layers: Count = 2
    forget_bias: NotNegative = 0.0

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a `NextCharacter` over `num_classes` symbols."""
        if len(input_shape) != 1:
            raise refuse(
                "input_shape of CharLstm",
                given=input_shape,
                needed="(T,), the indices of T characters",
                instead="Give the characters' indices themselves, not one-hot vectors",
            )
        return NextCharacter(num_classes, self)


class NextCharacter(nn.Module):
    """Integers ``[M, T]`` to logits ``[M, C]`` for the character that follows."""

    def __init__(self, num_symbols: int, options: CharLstm) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_symbols, options.embedding)
        self.lstm = Lstm(options.embedding, options.hidden, options.layers, options.forget_bias)
        self.output = nn.Linear(options.hidden, num_symbols)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits for the character after the last one."""
        steps = self.embedding(x.long()).transpose(0, 1)
        return self.output(self.lstm(steps)[-1])


class Lstm(nn.Module):
    """Stacked LSTM from zero states; inputs ``[T, M, D]`` to outputs of the last layer ``[T, M, H]``.

    At each step t and layer, with * for the product entry by entry::

        i, f, g, o = split(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)
        c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
        h_t = sigmoid(o) * tanh(c_t)

    Parameters have the names, shapes, order and random start of `torch.nn.LSTM`, so that weights can be exchanged. Its
    kernel computes all of this at once, but for one network only: it has no rule for `torch.func.vmap`. So it is used
    where clients train one by one, and `Recurrence` where they train together.

    Args:
        inputs: D.
        hidden: H.
        layers: number of layers.
        forget_bias: added to the first ``b_ih`` of f. With 1 a cell starts by keeping most of what it has, so that
            gradients reach far back.

    Attributes:
        alone: whether the parameters are those of one client at a time; set by the caller.
    """

    alone = False

    def __init__(self, inputs: int, hidden: int, layers: int, forget_bias: float = 0.0) -> None:
        super().__init__()
        self.hidden, self.layers = hidden, layers
        bound = 1 / math.sqrt(hidden)
        for layer in range(layers):
            width = inputs if layer == 0 else hidden
            for name, shape in {
                "weight_ih": (4 * hidden, width),
                "weight_hh": (4 * hidden, hidden),
                "bias_ih": (4 * hidden,),
                "bias_hh": (4 * hidden,),
            }.items():
                weights = torch.empty(shape).uniform_(-bound, bound)
                if name == "bias_ih":
                    weights[hidden : 2 * hidden] += forget_bias
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(weights))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return outputs of the last layer at every step."""
        parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = [[getattr(self, f"{part}_l{layer}") for part in parts] for layer in range(self.layers)]
        if self.alone:
            zeros = x.new_zeros(self.layers, x.shape[1], self.hidden)
            flat = [weight for layer in weights for weight in layer]
            return torch.lstm(x, (zeros, zeros), flat, True, self.layers, 0.0, torch.is_grad_enabled(), False, False)[0]
        for layer in weights:
            x = self._layer(x, *layer)
        return x

    def _layer(
        self, x: torch.Tensor, w_ih: torch.Tensor, w_hh: torch.Tensor, b_ih: torch.Tensor, b_hh: torch.Tensor
    ) -> torch.Tensor:
        # The inputs of all steps go through their matrix at once.
        wide = F.linear(x, w_ih, b_ih + b_hh)
        with torch.autocast(x.device.type, enabled=False):  # cells are sums over all steps
            outputs: Any = Recurrence.apply(wide.to(w_hh.dtype).unsqueeze(1), w_hh.unsqueeze(0))
        return outputs[0].squeeze(1)


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
