"""Generate Synthetic(alpha, beta) and its IID variant: Gaussian inputs, with labels of a linear model per client."""

from __future__ import annotations

import numpy as np
import torch

from turnout.core.checks import check_seed, count, not_negative
from turnout.core.random import generator
from turnout.data.directory import declare
from turnout.data.source import SOURCES, Source

_DIMENSION, _NUM_CLASSES = 60, 10
_DEVIATIONS = np.arange(1, _DIMENSION + 1, dtype=np.float64) ** -0.6
"""Square root of the diagonal of Sigma, Sigma_jj = j^-1.2."""

declare("synthetic", elsewhere="drawn when it is used")
declare("synthetic_iid", elsewhere="drawn when it is used")


@SOURCES.register
def synthetic(alpha: float = 1.0, beta: float = 1.0, *, num_clients: int = 30, seed: int = 0) -> Source:
    """Synthetic(alpha, beta) of FedProx: every client has its own linear model and distribution of inputs; generated.

    For client k, with 60 inputs, 10 classes and Sigma = diag(j^-1.2)::

        n_k = floor(LogNormal(4, 2)) + 50
        u_k ~ N(0, alpha^2),   W_k entries and b_k entries ~ N(u_k, 1)
        B_k ~ N(0, beta^2),    v_k entries ~ N(B_k, 1)
        x ~ N(v_k, Sigma),     y = argmax(W_k^T x + b_k)

    In the papers alpha and beta are variances; in FedProx's code and here they are standard deviations, which is the same
    for 0 and 1. All logits of a client are shifted by u_k (1 + sum_j x_j), so alpha does not change any label: the
    heterogeneity is due to W_k, v_k and beta.

    Inputs are float32 ``[n, 60]``; each client is a natural client. The authors test on a tenth of every client's
    examples: ``synthetic().split(test_fraction=0, client_test_fraction=0.1)``.

    Args:
        alpha: standard deviation of the clients' mean weights.
        beta: standard deviation of the clients' mean inputs.
        num_clients: number of clients.
        seed: seed of all draws. With the same seed, other values of alpha and beta scale the same draws.

    Raises:
        ConfigurationError: if alpha or beta is < 0, there are no clients, or the seed is not an integer >= 0.

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, section 5.1, and the authors'
    code.
    """
    not_negative("alpha", alpha)
    not_negative("beta", beta)
    rng, sizes = _start(num_clients, seed)
    u, center = alpha * rng.standard_normal(num_clients), beta * rng.standard_normal(num_clients)
    mean = center[:, None] + rng.standard_normal((num_clients, _DIMENSION))
    weights = u[:, None, None] + rng.standard_normal((num_clients, _DIMENSION, _NUM_CLASSES))
    bias = u[:, None] + rng.standard_normal((num_clients, _NUM_CLASSES))
    x = _inputs(mean, sizes, rng)
    recipe = {"source": "synthetic", "alpha": alpha, "beta": beta, "num_clients": num_clients, "seed": seed}
    return _source(f"synthetic_{alpha:g}_{beta:g}", x, linear_labels(x, sizes, weights, bias), sizes, recipe)


@SOURCES.register
def synthetic_iid(*, num_clients: int = 30, seed: int = 0) -> Source:
    """Synthetic_iid of FedProx: the same linear model and distribution of inputs for all clients; generated.

    As `synthetic`, with the same sizes, but with one W and one b with entries ~ N(0, 1), and v_k = 0 for all clients.

    Args:
        num_clients: number of clients.
        seed: seed of all draws.

    Raises:
        ConfigurationError: if there are no clients, or the seed is not an integer >= 0.

    Reference: as of `synthetic`.
    """
    rng, sizes = _start(num_clients, seed)
    weights, bias = rng.standard_normal((1, _DIMENSION, _NUM_CLASSES)), rng.standard_normal((1, _NUM_CLASSES))
    x = _inputs(np.zeros((num_clients, _DIMENSION)), sizes, rng)
    y = linear_labels(x, sizes.sum(keepdims=True), weights, bias)
    return _source("synthetic_iid", x, y, sizes, {"source": "synthetic_iid", "num_clients": num_clients, "seed": seed})


def linear_labels(x: np.ndarray, sizes: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return argmax(W_k^T x + b_k) of examples ``[n, d]``, concatenated by model, int64 ``[n]``.

    Args:
        x: inputs.
        sizes: number of examples of each of K models, ``[K]``.
        weights: ``[K, d, C]``.
        bias: ``[K, C]``.
    """
    y, ends = np.empty(len(x), dtype=np.int64), np.cumsum(sizes)
    for rows, w, b in zip(map(slice, ends - sizes, ends), weights, bias, strict=True):
        y[rows] = (x[rows] @ w + b).argmax(axis=1)
    return y


def _start(num_clients: int, seed: int) -> tuple[np.random.Generator, np.ndarray]:
    """Return the random generator, and the sizes of clients that it draws first, int64 ``[N]``."""
    count("num_clients", num_clients)
    check_seed(seed)
    rng = generator("synthetic data", seed)
    return rng, rng.lognormal(4.0, 2.0, num_clients).astype(np.int64) + 50


def _inputs(mean: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw inputs from N(v_k, Sigma), concatenated by client, float32 ``[n, 60]``, in place, since clients may be large."""
    x = rng.standard_normal((sizes.sum(), _DIMENSION), dtype=np.float32)
    x *= _DEVIATIONS.astype(np.float32)
    x += mean.astype(np.float32).repeat(sizes, axis=0)
    return x


def _source(name: str, x: np.ndarray, y: np.ndarray, sizes: np.ndarray, recipe: dict[str, object]) -> Source:
    owners = np.arange(len(sizes)).repeat(sizes)
    return Source(name, torch.from_numpy(x), torch.from_numpy(y), _NUM_CLASSES, client_ids=owners, recipe=recipe)
