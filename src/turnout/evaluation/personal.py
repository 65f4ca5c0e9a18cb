"""Evaluate the personal model of each client on its examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.data.shards import Shards
from turnout.distributed import collectives
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import weighted_scores
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
    models: Models, everyone: Clients, lanes: int, watch: Watch, *, outputs: bool = False
) -> PersonalScores:
    """Score the personal model of every client on its examples, without dropout and random transforms.

    Args:
        models: function that returns the models of clients.
        everyone: all clients, with the examples.
        lanes: number of clients that are evaluated side by side.
        watch: receives the numbers of evaluated and of all clients.
        outputs: return outputs and targets as well; clients are then evaluated one after another.
    """
    shards = everyone.shards
    sizes, metric = shards.sizes, everyone.objective.metric(shards.y)
    means, pairs = np.full((2 if shards.weights is None else 4, len(sizes)), np.nan), {}
    if outputs:
        for k in np.flatnonzero(sizes).tolist():
            watch(k, len(sizes))
            means[:, k], pairs[k] = _scores_of_one(models(np.array([k]))[0], everyone, k)
    else:
        order = np.argsort(-sizes, kind="stable")  # by size, so that lanes are about equally long
        holders = order[sizes[order] > 0]
        means[:, holders] = _scores_of_some(models, everyone, holders, lanes, watch)
    if shards.weights is None:
        return PersonalScores(means[0], means[1], sizes, metric, pairs=pairs)
    totals = np.bincount(shards.owners(), weights=shards.weights.cpu().numpy(), minlength=len(sizes))
    mean_weight = np.where(sizes > 0, totals, np.nan) / np.maximum(sizes, 1)
    weighted = means[2] / mean_weight, means[3] / mean_weight, totals
    return PersonalScores(means[0], means[1], sizes, metric, weighted, pairs)


def _scores_of_some(models: Models, everyone: Clients, ids: np.ndarray, lanes: int, watch: Watch) -> np.ndarray:
    """Return means of loss and score and, with weights, of both times the weights, ``[2, B]`` or ``[4, B]``.

    Each process evaluates a share of the clients.
    """
    share, device = collectives.share(len(ids)), everyone.objective.device
    means = np.empty((share.stop - share.start, 2 if everyone.shards.weights is None else 4))
    for low in range(share.start, share.stop, lanes):
        watch(low, len(ids))
        some = ids[low : min(low + lanes, share.stop)]
        scores = weighted_scores(replace(everyone, ids=some, rows=some), models(some))
        means[low - share.start :][: len(some)] = scores.cpu().numpy().T
    if collectives.world_size() > 1:
        index = torch.arange(share.start, share.stop, device=device)
        means = collectives.all_gather(to_device(means, device), index, len(ids)).cpu().numpy()
    return means.T


def _scores_of_one(
    params: torch.Tensor, everyone: Clients, client: int
) -> tuple[list[float], tuple[torch.Tensor, torch.Tensor]]:
    """Return the means of `_scores_of_some` for one client, and its outputs and targets."""
    shards = everyone.shards
    rows = slice(int(shards.offsets[client]), int(shards.offsets[client + 1]))
    examples = Shards.pooled(*shards.client(client), None if shards.weights is None else shards.weights[rows])
    scores = evaluate(everyone.objective, params, examples, everyone.transforms, outputs=True)
    means = [scores.loss.mean(), scores.score.mean()]
    if (w := scores.weights) is not None:
        means += [(w * scores.loss).mean(), (w * scores.score).mean()]
    return means, scores.pairs[0]
