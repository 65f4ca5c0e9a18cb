"""Evaluate a model's representations of examples."""

from __future__ import annotations

import torch

from turnout.core.checks import ConfigurationError
from turnout.engine.network import Network


def features(
    network: Network,
    params: torch.Tensor,
    x: torch.Tensor,
    key: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the representations of examples, ``[b, d]``: the input of the last layer with trainable parameters.

    Args:
        network: the model.
        params, x, key, mask: as in `Network.outputs`.

    Raises:
        ConfigurationError: if there is no layer before that one, or if it is not called exactly once, with one tensor
            that has a row for each example.
    """
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
    (name, head), received = layers[-1], []
    hook = head.register_forward_pre_hook(lambda _, inputs: received.append(inputs))
    try:
        network.outputs(params, x, key, mask)
    finally:
        hook.remove()
    if [len(inputs) for inputs in received] != [1] or len(received[0][0]) != len(x):
        raise ConfigurationError(
            f"representations: the last layer with trainable parameters, {name!r}, was called {len(received)} times; "
            "needed once, with one tensor that has a row for each example"
        )
    return received[0][0].flatten(start_dim=1)
