"""How well clients are served where each has a personal part: the shared model joined with what is its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.data.federated import Shards
from turnout.distributed import collectives
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import weighted_scores
from turnout.engine.loss import metric_of
from turnout.evaluation.evaluate import figures

Models = Callable[[np.ndarray], torch.Tensor]
"""From client numbers to the model of each, ``[B, P]``."""


@dataclass(frozen=True, eq=False)
class OwnScores:
    """Mean loss and mean score of each client, ``[N]`` (NaN without examples), and how many examples each has.

    Scores and the metric are those of `turnout.evaluation.evaluate.Scores`.

    Attributes:
        weighted: weighted means of losses and scores, and the sum of weights of each client, ``[N]`` each; None without
            weights.
    """

    loss: np.ndarray
    score: np.ndarray
    num_examples: np.ndarray
    metric: str = "accuracy"
    weighted: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def mean(self) -> dict[str, float]:
        """Mean loss, and the metric, over all examples; with weights, the weighted means too."""
        found = self._mean(self.loss, self.score, self.num_examples)
        return found if self.weighted is None else found | self._mean(*self.weighted, prefix="weighted_")

    def by_client(self) -> dict[str, np.ndarray]:
        """Mean loss, and the metric, of each client."""
        found = figures(self.metric, self.loss, self.score)
        return found if self.weighted is None else found | figures(self.metric, *self.weighted[:2], "weighted_")

    def _mean(self, loss: np.ndarray, score: np.ndarray, size: np.ndarray, prefix: str = "") -> dict[str, float]:
        share, some = size / size.sum(), size > 0
        return figures(self.metric, float(share[some] @ loss[some]), float(share[some] @ score[some]), prefix)


def evaluate_own(models: Models, clients: Callable[[np.ndarray], Clients], shards: Shards, lanes: int) -> OwnScores:
    """Score every client's own model on its examples, without dropout and random transforms.

    Args:
        models: everyone's model.
        clients: lanes for client numbers.
        shards: their examples.
        lanes: how many clients to go through side by side.
    """
    sizes, metric = shards.sizes, metric_of(shards.y)
    means = np.full((2 if shards.weights is None else 4, len(sizes)), np.nan)
    order = np.argsort(-sizes, kind="stable")  # alike beside alike, so that few lanes wait for one
    holders = order[sizes[order] > 0]
    mine = collectives.share(len(holders))
    for low in range(mine.start, mine.stop, lanes):
        ids = holders[low : min(low + lanes, mine.stop)]
        means[:, ids] = weighted_scores(clients(ids), models(ids)).cpu().numpy()
    if collectives.world_size() > 1:
        device = clients(holders[:0]).objective.device
        own = to_device(np.ascontiguousarray(means.T[holders[mine]]), device)
        of_all = collectives.all_gather(own, torch.arange(mine.start, mine.stop, device=device), len(holders))
        means[:, holders] = of_all.T.cpu().numpy()
    if shards.weights is None:
        return OwnScores(means[0], means[1], sizes, metric)
    totals = np.bincount(shards.owners(), weights=shards.weights.cpu().numpy(), minlength=len(sizes))
    of_one = np.where(sizes > 0, totals, np.nan) / np.maximum(sizes, 1)
    return OwnScores(means[0], means[1], sizes, metric, (means[2] / of_one, means[3] / of_one, totals))
