"""Further terms of the loss on a minibatch, which may compare the representations of several models."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from turnout.engine.features import features
from turnout.engine.network import Network


class Minibatch(NamedTuple):
    """The minibatch of one client, as the input of a term of the loss.

    Attributes:
        network: the model as a function of its parameters.
        x: inputs, ``[b, ...]``.
        mask: 1, or its weight, for an example and 0 for padding, ``[b]``; None without padding and weights.
        key: 64 random bits, for dropout.
    """

    network: Network
    x: torch.Tensor
    mask: torch.Tensor | None
    key: torch.Tensor

    def features(self, params: torch.Tensor, training: bool = True) -> torch.Tensor:
        """Return the representations of the examples by a model, ``[b, d]``; see `turnout.engine.features.features`.

        Args:
            params: parameters of the model, ``[P]``.
            training: whether to use training mode; False, without dropout, for models that are constant in the term.
        """
        self.network.mode(training)
        examples = None if self.mask is None else self.mask.sign()
        representations = features(self.network, params, self.x, self.key, examples)
        self.network.mode(training=True)
        return representations


Term = Callable[..., torch.Tensor]
"""Function ``term(minibatch, params, *others)``: the term of each example of a client, ``[b]``."""


def mean_loss(losses: torch.Tensor, mask: torch.Tensor | None, inside: torch.Tensor | None = None) -> torch.Tensor:
    """Return the mean over a minibatch of losses ``[b]`` times their weights.

    Args:
        losses: losses of the examples, ``[b]``.
        mask: 1, or its weight, for an example and 0 for padding, ``[b]``; None without padding and weights.
        inside: signs of the mask, if they are known; their sum, the number of examples, is the divisor.
    """
    if mask is None:
        return losses.mean()
    return (losses * mask).sum() / (mask.sign() if inside is None else inside).sum()
