"""The networks of W1 to W4 in JAX, with the parameters of the modules."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from turnout.models.lstm import Lstm


def of(module: nn.Module) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Return the parameters of a module as JAX arrays, and its function of parameters and a minibatch."""
    from jax import numpy as jnp

    layers = [layer for layer in module.modules() if type(layer) in LAYERS]
    params = [
        {name: jnp.asarray(value.detach().cpu().numpy()) for name, value in layer.named_parameters()}
        for layer in layers
    ]
    kinds = [type(layer) for layer in layers]

    def network(params: Any, x: Any) -> Any:
        for number, (kind, here) in enumerate(zip(kinds, params, strict=True)):
            x = LAYERS[kind](here, x)
            if kind is nn.Linear and number < len(kinds) - 1:
                x = jnp.maximum(x, 0)
        return x

    return params, network


def _linear(params: Any, x: Any) -> Any:
    return x.reshape(len(x), -1) @ params["weight"].T + params["bias"]


def _convolution(params: Any, x: Any) -> Any:
    """Return the convolution with padding 1, followed by a maximum over 2 x 2 and ReLU."""
    from jax import lax
    from jax import numpy as jnp

    x = lax.conv_general_dilated(x, params["weight"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    x = x + params["bias"][:, None, None]
    return jnp.maximum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"), 0)


def _embedding(params: Any, x: Any) -> Any:
    return params["weight"][x]


def _lstm(params: Any, x: Any) -> Any:
    """Return the last output of stacked LSTM layers, ``[M, H]``."""
    import jax
    from jax import numpy as jnp

    outputs = x.transpose(1, 0, 2)
    for layer in range(len(params) // 4):
        w_ih, w_hh, b_ih, b_hh = (
            params[f"{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )

        def cell(state: Any, wide: Any, w: Any = w_hh, b: Any = b_hh) -> tuple[Any, Any]:
            h, c = state
            i, f, g, o = jnp.split(wide + h @ w.T + b, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((outputs.shape[1], w_hh.shape[1]))
        _, outputs = jax.lax.scan(cell, (zeros, zeros), outputs @ w_ih.T + b_ih)
    return outputs[-1]


LAYERS: dict[type[nn.Module], Callable[[Any, Any], Any]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.Embedding: _embedding,
    Lstm: _lstm,
}
"""Functions of parameters and inputs by the type of a layer; others, such as ReLU, are part of these."""
