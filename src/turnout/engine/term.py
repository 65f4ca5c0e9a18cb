"""Further terms of the loss on a minibatch, which may compare the representations of several models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from turnout.core.checks import ConfigurationError
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
        """Return the representations of the examples by a model, ``[b, d]``: the input of its last trainable layer.

        Args:
            params: parameters of the model, ``[P]``.
            training: whether to use training mode; False, without dropout, for models that are constant in the term.

        Raises:
            ConfigurationError: if there is no layer before that one, or if it is not called exactly once, with one tensor
                that has a row for each example.
        """
        network, received = self.network, list[Any]()
        layers = [
            (name, layer)
            for name, layer in network.module_of_thread().named_modules()
            if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
        ]
        if len(layers) < 2:
            raise ConfigurationError(
                f"representations: {type(network.module).__name__} has one layer with trainable parameters, and a "
                "representation is what the last of them receives: needed one before the last"
            )
        name, head = layers[-1]
        hook = head.register_forward_pre_hook(lambda _, inputs: received.append(inputs))
        network.mode(training)
        try:
            network.outputs(params, self.x, self.key, None if self.mask is None else self.mask.sign())
        finally:
            hook.remove()
            network.mode(training=True)
        if [len(inputs) for inputs in received] != [1] or len(received[0][0]) != len(self.x):
            raise ConfigurationError(
                f"representations: the last layer with trainable parameters, {name!r}, was called {len(received)} times; "
                "needed once, with one tensor that has a row for each example"
            )
        return received[0][0].flatten(start_dim=1)


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
