"""How well clients are served where each has a personal part: the shared model joined with what is its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.data.federated import Shards
from turnout.data.transforms import Transform
from turnout.distributed import collectives
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import weighted_scores
from turnout.engine.loss import metric_of
from turnout.engine.objective import Objective
from turnout.evaluation.evaluate import evaluate, figures

Models = Callable[[np.ndarray], torch.Tensor]
"""From client numbers to the model of each, ``[B, P]``."""


@dataclass(frozen=True, eq=False)
class OwnScores:
    """Mean loss and mean score of each client, ``[N]`` (NaN without examples), and how many examples each has.

    Scores and the metric are those of `turnout.evaluation.evaluate.Scores`.

    Attributes:
        pairs: outputs and targets by client, of clients with examples, where they were asked for.
        weighted: weighted means of losses and scores, and the sum of weights of each client, ``[N]`` each; None without
            weights.
    """

    loss: np.ndarray
    score: np.ndarray
    num_examples: np.ndarray
    metric: str = "accuracy"
    weighted: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    pairs: Mapping[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

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
    sizes = shards.sizes
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
    return _scores(means, shards)


def evaluate_own_with_outputs(
    objective: Objective, models: Models, shards: Shards, transforms: tuple[Transform, ...]
) -> OwnScores:
    """Score every client's own model as `evaluate_own` does, one after another, and return its outputs too.

    Args:
        objective: model and loss.
        models: everyone's model.
        shards: clients' examples.
        transforms: what happens to examples before the model sees them.
    """
    means, pairs = np.full((2 if shards.weights is None else 4, shards.num_clients), np.nan), {}
    for k in np.flatnonzero(shards.sizes).tolist():
        rows = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
        held = Shards.pooled(*shards.client(k), None if shards.weights is None else shards.weights[rows])
        scores = evaluate(objective, models(np.array([k]))[0], held, transforms, outputs=True)
        pairs |= {k: scores.pairs[0]}
        means[:2, k] = scores.loss.mean(), scores.score.mean()
        if (w := scores.weights) is not None:
            means[2:, k] = (w * scores.loss).mean(), (w * scores.score).mean()
    return replace(_scores(means, shards), pairs=pairs)


def _scores(means: np.ndarray, shards: Shards) -> OwnScores:
    """Return the scores of clients from the means of losses and scores, and with weights of these times them."""
    sizes, metric = shards.sizes, metric_of(shards.y)
    if shards.weights is None:
        return OwnScores(means[0], means[1], sizes, metric)
    totals = np.bincount(shards.owners(), weights=shards.weights.cpu().numpy(), minlength=len(sizes))
    of_one = np.where(sizes > 0, totals, np.nan) / np.maximum(sizes, 1)
    return OwnScores(means[0], means[1], sizes, metric, (means[2] / of_one, means[3] / of_one, totals))
