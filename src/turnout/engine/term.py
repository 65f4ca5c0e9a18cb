"""Further terms of the loss on a minibatch, which may compare representations by several models."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from turnout.engine.network import Network


class Minibatch(NamedTuple):
    """The minibatch of one client, as a term of the loss sees it.

    Attributes:
        network: the model as a function of its parameters.
        x: inputs, ``[b, ...]``.
        mask: 1, or its weight, for an example and 0 for padding, ``[b]``; None where nothing is padded or weighted.
        key: 64 random bits, for dropout.
    """

    network: Network
    x: torch.Tensor
    mask: torch.Tensor | None
    key: torch.Tensor

    def features(self, params: torch.Tensor, training: bool = True) -> torch.Tensor:
        """Return the representations of the examples by a model ``[P]``, see `Network.features`, ``[b, d]``.

        Args:
            params: the model.
            training: False for evaluation mode, in which dropout does nothing, for models that the term holds still.
        """
        self.network.mode(training)
        features = self.network.features(params, self.x, self.key, None if self.mask is None else self.mask.sign())
        self.network.mode(training=True)
        return features


Term = Callable[..., torch.Tensor]
"""``term(minibatch, params, *others)``: the term of each example, ``[b]``, of one client with a model ``[P]``."""


def mean_loss(losses: torch.Tensor, mask: torch.Tensor | None, inside: torch.Tensor | None = None) -> torch.Tensor:
    """Return the mean of losses ``[b]``, times their weights, over a minibatch.

    Args:
        losses: of the examples.
        mask: 1, or its weight, for an example and 0 for padding, ``[b]``; None where nothing is padded or weighted.
        inside: the signs of the mask, where they are known. The divisor is their sum, the number of examples.
    """
    if mask is None:
        return losses.mean()
    return (losses * mask).sum() / (mask.sign() if inside is None else inside).sum()
