"""Compute losses, accuracies and gradients of clients over all of their examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.engine.examples import Examples

BLOCK = 128
"""Examples of a client in one pass, if each client has its own model."""

_BATCH = 256  # examples in one pass, if all clients have the same model


def full_gradient(clients: Examples, params: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss ``[B]`` and gradient ``[B, P]`` over each client's data, without dropout and random transforms.

    Args:
        clients: the clients.
        params: parameters, ``[P]`` for all clients or ``[B, P]``.
    """
    blocks = _Blocks(clients)
    params = blocks.sorted(params)
    loss, gradient = params.new_zeros(len(params)), torch.zeros_like(params)
    keys = torch.zeros(len(params), dtype=torch.int64, device=params.device)
    for x, y, weights, inside in blocks:
        active = len(inside)
        mask = None if weights is None and inside.all() else to_device(inside, params.device, params.dtype)
        mask = mask if weights is None or mask is None else mask * weights.to(mask.dtype)
        losses, gradients = clients.objective.gradient(params[:active], x, y, mask, keys[:active], training=False)
        share = to_device(inside.sum(axis=1) / blocks.sizes[:active], params.device, params.dtype)[:, None]
        loss[:active] += losses * share[:, 0]
        gradient[:active].addcmul_(gradients, share)
    back = blocks.back(params.device)
    return loss[back], gradient[back]


def full_scores(clients: Examples, params: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss and mean score of each client's data, float64 ``[B]``; NaN for a client without examples.

    The mean score is the accuracy if targets are labels, and the mean squared error if they are numbers. With one model
    for all clients, the forward passes run over their concatenated data.

    Args:
        clients: the clients.
        params: parameters, ``[P]`` for all clients or ``[B, P]``.
    """
    loss, score, *_ = weighted_scores(clients, params)
    return loss, score


def weighted_scores(clients: Examples, params: torch.Tensor) -> torch.Tensor:
    """Return `full_scores` and, if examples have weights, also the means of losses and scores times the weights.

    All means divide by the number of examples. Float64, ``[2, B]`` or ``[4, B]``.
    """
    return _means(clients, params, _with_products)


def mean_square_loss(clients: Examples, params: torch.Tensor) -> torch.Tensor:
    """Return the mean of the squared losses of each client's examples, float64 ``[B]``; see `full_scores`."""
    return _means(clients, params, lambda loss, *others: _with_products(loss.double().square(), *others))[0]


Rows = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Function from losses, scores and weights of examples to the values to average, ``[2, ...]`` or ``[4, ...]``."""


def _means(clients: Examples, params: torch.Tensor, of: Rows) -> torch.Tensor:
    """Return means over each client's examples, float64 ``[2, B]`` or ``[4, B]``."""
    at = _scores_at_one_model if params.dim() == 1 else _scores_at_own_models
    sizes = to_device(np.where(clients.num_examples > 0, clients.num_examples, np.nan), params.device)
    return at(clients, params, of) / sizes


def _with_products(loss: torch.Tensor, score: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Return losses and scores and, if there are weights, both multiplied by the weights, as rows."""
    return torch.stack([loss, score] if weights is None else [loss, score, loss * weights, score * weights])


def _scores_at_one_model(clients: Examples, params: torch.Tensor, of: Rows) -> torch.Tensor:
    """Return sums over each client's examples of the values of `of`, ``[2, B]`` or ``[4, B]``, at one model."""
    weights = clients.shards.weights
    sizes, begin = clients.num_examples, clients.shards.offsets[clients.rows]
    if not sizes.sum():
        return torch.zeros(2 if weights is None else 4, len(sizes), dtype=torch.float64)
    rows = np.arange(sizes.sum()) + np.repeat(begin - (np.cumsum(sizes) - sizes), sizes)
    # Padded to full batches, because the bits of a matrix product may depend on its number of rows, and a client's bits must
    # not depend on the other clients of the cohort.
    padded = to_device(np.append(rows, np.repeat(rows[:1], -len(rows) % _BATCH)), params.device)

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for batch in padded.split(_BATCH):
            x, y = clients.minibatch(batch[None], None)
            yield x[0], y[0]

    owner = np.repeat(np.arange(len(sizes)), sizes)
    loss, score = (values[: len(rows)] for values in clients.objective.evaluate(params, batches()))
    of_rows = of(loss, score, None if weights is None else weights[padded[: len(rows)]])
    sums = [np.bincount(owner, weights=values, minlength=len(sizes)) for values in of_rows.cpu().numpy()]
    return to_device(np.stack(sums), params.device)


def _scores_at_own_models(clients: Examples, params: torch.Tensor, of: Rows) -> torch.Tensor:
    """Return sums over each client's examples of the values of `of`, ``[2, B]`` or ``[4, B]``, at own models."""
    blocks = _Blocks(clients)
    params = blocks.sorted(params)
    rows = 2 if clients.shards.weights is None else 4
    sums = torch.zeros(rows, len(params), dtype=torch.float64, device=params.device)
    for x, y, weights, inside in blocks:
        scores = of(*clients.objective.scores(params[: len(inside)], x, y), weights)
        sums[:, : len(inside)] += scores.where(to_device(inside, params.device), 0.0).sum(dim=2)
    return sums[:, blocks.back(params.device)]


class _Blocks:
    """The data of B clients, in blocks of the clients that have examples left.

    Clients are sorted by descending number of examples, so that those of a block are always the first ones.
    """

    def __init__(self, clients: Examples) -> None:
        self.clients = clients
        self.order = np.argsort(-clients.num_examples, kind="stable")
        self.sizes = clients.num_examples[self.order]

    def sorted(self, params: torch.Tensor) -> torch.Tensor:
        """Return one vector for each client in sorted order, ``[B, P]``, from ``[P]`` or ``[B, P]``."""
        if params.dim() == 1:
            return params.expand(len(self.order), -1)
        return params[to_device(self.order, params.device)]

    def back(self, device: torch.device) -> torch.Tensor:
        """Return the position of each client in the sorted order, int64 ``[B]``."""
        return to_device(np.argsort(self.order), device)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, np.ndarray]]:
        """Yield inputs, targets and weights ``[b, width, ...]`` of the first b clients, and which are no padding, bool."""
        weights = self.clients.shards.weights
        begin = self.clients.shards.offsets[self.clients.rows][self.order]
        # A function of all clients' data and not of this cohort: the bits of sums must not depend on the split into cohorts.
        width = min(BLOCK, max(self.clients.shards.largest, 1))
        for low in range(0, int(self.sizes.max(initial=0)), width):
            active = int((self.sizes > low).sum())
            counts = np.minimum(self.sizes[:active] - low, width)
            rows = begin[:active, None] + low + np.minimum(np.arange(width), counts[:, None] - 1)
            examples = to_device(rows, self.clients.objective.device)
            x, y = self.clients.minibatch(examples, None)
            yield x, y, None if weights is None else weights[examples], np.arange(width) < counts[:, None]
