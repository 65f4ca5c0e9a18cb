"""Dropout with masks that are a pure function of (seed, version, client, step), for any batching of clients."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import nn

from turnout.core.random import fold, uniform
from turnout.engine.plain_layers import is_plain, with_layers


class KeyedDropout(nn.Module):
    """Apply inverted dropout with a mask hashed from a key: ``x * [u >= p] / (1 - p)``.

    u is uniform on [0, 1), and p is the probability. The key is a buffer, so that `functional_call` can set it for
    every client. The mask of an entry depends on its position in its example and on the position of the example in the
    minibatch, and not on the number of examples. A layer that the model calls several times has a new mask for each
    call.

    Args:
        probability: probability that an entry (or a whole channel) is zeroed, in [0, 1].
        channels: whether to zero whole channels, as `nn.Dropout1d`, `nn.Dropout2d` and `nn.Dropout3d` do.
        layer: number of this layer in the model, so that layers do not share masks.
    """

    key: torch.Tensor

    def __init__(self, probability: float, *, channels: bool, layer: int) -> None:
        super().__init__()
        self.probability, self.channels, self.layer = probability, channels, layer
        self.p = probability  # as in layers of torch, for models that read it
        self.uses = 0  # in the present call of the model; `Network.outputs` resets it
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop entries in training; return `x` in evaluation."""
        if not self.training or self.probability == 0.0:
            return x
        whole = self.channels and x.dim() > 2
        shape = x.shape[:2] + (1,) * (x.dim() - 2) if whole else x.shape
        positions = torch.arange(shape.numel(), device=x.device)
        # Negative, because transforms fold the key with the non-negative numbers of a minibatch's examples.
        number = ~(self.layer + (self.uses << 16))
        self.uses += 1
        key = fold(cast("torch.Tensor", self.key), torch.full((), number, device=x.device))
        keep = uniform(fold(key, positions)).view(shape) >= self.probability
        return x * keep.to(x.dtype) * (1.0 / (1.0 - self.probability) if self.probability < 1.0 else 0.0)


_BY_ENTRY = (nn.Dropout,)
_BY_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def with_keyed_dropout(module: nn.Module) -> tuple[nn.Module, list[str]]:
    """Return a copy of `module` with keyed dropout layers, and the names of the buffers for the key.

    Trainable parameters of the copy share their memory with those of the module: a call of a network replaces them, so
    they are neither read nor written. Subclasses of torch's layers that compute something else stay as they are.
    """
    trained = [p for p in module.parameters() if p.requires_grad and type(p) is nn.Parameter]
    module = copy.deepcopy(module, {id(p): nn.Parameter(p.detach()) for p in trained})
    named = module.named_modules(remove_duplicate=False)
    layers = [(name, layer) for name, layer in named if is_plain(layer, _BY_ENTRY + _BY_CHANNEL)]

    def keyed(layer: Any, number: int) -> KeyedDropout:
        return KeyedDropout(layer.p, channels=isinstance(layer, _BY_CHANNEL), layer=number)

    module, prefixes = with_layers(module, layers, keyed)
    return module, [f"{prefix}key" for prefix in prefixes]
