"""Evaluate the personal model of each client on its examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.data.shards import Shards
from turnout.data.transforms import Transform
from turnout.distributed import collectives
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import weighted_scores
from turnout.engine.objective import Objective
from turnout.evaluation.evaluate import Watch, evaluate, figures

Models = Callable[[np.ndarray], torch.Tensor]
"""A function from client numbers to the model of each, ``[B, P]``."""


@dataclass(frozen=True, eq=False)
class PersonalScores:
    """Mean loss and mean score of each client, ``[N]``, NaN without examples.

    Attributes:
        loss: mean loss of each client.
        score: mean score of each client, see `turnout.evaluation.evaluate.Scores`.
        num_examples: number of examples of each client.
        metric: ``"accuracy"``, or ``"rmse"`` for numbers.
        weighted: weighted means of losses and scores, and the sum of weights of each client, ``[N]`` each; None without
            weights.
        pairs: outputs and targets by client, of clients with examples, if they were requested.
    """

    loss: np.ndarray
    score: np.ndarray
    num_examples: np.ndarray
    metric: str = "accuracy"
    weighted: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    pairs: Mapping[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def mean(self) -> dict[str, float]:
        """Return mean loss and metric over all examples; with weights, the weighted means as well."""
        means = self._mean(self.loss, self.score, self.num_examples)
        return means if self.weighted is None else means | self._mean(*self.weighted, prefix="weighted_")

    def by_client(self) -> dict[str, np.ndarray]:
        """Return mean loss and metric of each client."""
        means = figures(self.metric, self.loss, self.score)
        return means if self.weighted is None else means | figures(self.metric, *self.weighted[:2], "weighted_")

    def _mean(self, loss: np.ndarray, score: np.ndarray, size: np.ndarray, prefix: str = "") -> dict[str, float]:
        """Return the means of clients' means, weighted by size."""
        share, rows = size / size.sum(), size > 0
        return figures(self.metric, float(share[rows] @ loss[rows]), float(share[rows] @ score[rows]), prefix)


def evaluate_personal(
    models: Models,
    clients: Callable[[np.ndarray], Clients],
    shards: Shards,
    lanes: int,
    watch: Watch,
) -> PersonalScores:
    """Score the personal model of every client on its examples, without dropout and random transforms.

    Args:
        models: function that returns the models of clients.
        clients: function that returns clients by their numbers.
        shards: the examples.
        lanes: number of clients that are evaluated side by side.
        watch: receives the numbers of evaluated and of all clients.
    """
    sizes = shards.sizes
    means = np.full((2 if shards.weights is None else 4, len(sizes)), np.nan)
    order = np.argsort(-sizes, kind="stable")  # by size, so that lanes are about equally long
    holders = order[sizes[order] > 0]
    objective = clients(holders[:0]).objective
    share, metric = collectives.share(len(holders)), objective.metric(shards.y)
    for low in range(share.start, share.stop, lanes):
        watch(low, len(holders))
        ids = holders[low : min(low + lanes, share.stop)]
        means[:, ids] = weighted_scores(clients(ids), models(ids)).cpu().numpy()
    if collectives.world_size() > 1:
        device = objective.device
        rows = to_device(np.ascontiguousarray(means.T[holders[share]]), device)
        gathered = collectives.all_gather(rows, torch.arange(share.start, share.stop, device=device), len(holders))
        means[:, holders] = gathered.T.cpu().numpy()
    return _scores(means, shards, metric)


def evaluate_personal_with_outputs(
    objective: Objective,
    models: Models,
    shards: Shards,
    transforms: tuple[Transform, ...],
    watch: Watch,
) -> PersonalScores:
    """Score the personal models as `evaluate_personal` does, one after another, and return their outputs as well.

    Args:
        objective: model and loss.
        models: function that returns the models of clients.
        shards: the examples.
        transforms: transforms of examples.
        watch: receives the numbers of evaluated and of all clients.
    """
    means, pairs = np.full((2 if shards.weights is None else 4, shards.num_clients), np.nan), {}
    for k in np.flatnonzero(shards.sizes).tolist():
        watch(k, shards.num_clients)
        rows = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
        examples = Shards.pooled(*shards.client(k), None if shards.weights is None else shards.weights[rows])
        scores = evaluate(objective, models(np.array([k]))[0], examples, transforms, outputs=True)
        pairs |= {k: scores.pairs[0]}
        means[:2, k] = scores.loss.mean(), scores.score.mean()
        if (w := scores.weights) is not None:
            means[2:, k] = (w * scores.loss).mean(), (w * scores.score).mean()
    return replace(_scores(means, shards, objective.metric(shards.y)), pairs=pairs)


def _scores(means: np.ndarray, shards: Shards, metric: str) -> PersonalScores:
    """Return the scores of clients from their means: of loss, score and, with weights, of both times the weights."""
    sizes = shards.sizes
    if shards.weights is None:
        return PersonalScores(means[0], means[1], sizes, metric)
    totals = np.bincount(shards.owners(), weights=shards.weights.cpu().numpy(), minlength=len(sizes))
    mean_weight = np.where(sizes > 0, totals, np.nan) / np.maximum(sizes, 1)
    return PersonalScores(means[0], means[1], sizes, metric, (means[2] / mean_weight, means[3] / mean_weight, totals))
