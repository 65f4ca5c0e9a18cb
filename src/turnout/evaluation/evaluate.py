"""Loss, and accuracy or root-mean-square error, of one model on the data of all clients, in one pass over the flat tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from turnout.data.federated import Shards
from turnout.data.transforms import Transform, apply_transforms
from turnout.distributed import collectives
from turnout.engine.loss import metric_of
from turnout.engine.objective import Objective

_BATCH = 500  # examples a forward pass: large enough for the matrix units, small enough for the cache


@dataclass(frozen=True, eq=False)
class Scores:
    """Loss and score of every example of some shards, ``[n]``, and whose they are.

    Attributes:
        loss: one loss for each.
        score: 1 or 0 of labels, the squared error of numbers; NaN where the model's outputs cannot be compared with them.
        offsets: which examples are a client's, ``[N + 1]``.
        metric: ``"accuracy"``, or ``"rmse"`` of numbers.
        weights: how much each example counts in the weighted means; None where there are no such.
        outputs, targets: of all examples, where they were asked for.
    """

    loss: np.ndarray
    score: np.ndarray
    offsets: np.ndarray
    metric: str = "accuracy"
    weights: np.ndarray | None = None
    outputs: torch.Tensor | None = None
    targets: torch.Tensor | None = None

    @property
    def pairs(self) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """Outputs and targets by client, of clients with examples."""
        assert self.outputs is not None
        assert self.targets is not None
        sizes = np.diff(self.offsets)
        parts = zip(self.outputs.split(sizes.tolist()), self.targets.split(sizes.tolist()), strict=True)
        return {k: pair for k, pair in enumerate(parts) if sizes[k]}

    def mean(self) -> dict[str, float]:
        """Mean loss, and the metric, over all examples; with weights, the weighted means too."""
        found = figures(self.metric, self.loss.mean(), self.score.mean())
        if (w := self.weights) is not None:
            found |= figures(
                self.metric, np.average(self.loss, weights=w), np.average(self.score, weights=w), "weighted_"
            )
        return found

    def by_client(self) -> dict[str, np.ndarray]:
        """Mean loss, and the metric, of each client, float64 ``[N]``; NaN for a client without examples."""
        sizes = np.diff(self.offsets)
        owner = np.repeat(np.arange(len(sizes)), sizes)

        def sums(values: np.ndarray) -> np.ndarray:
            return np.bincount(owner, weights=values, minlength=len(sizes))

        some = np.where(sizes > 0, sizes, np.nan)
        found = figures(self.metric, sums(self.loss) / some, sums(self.score) / some)
        if (w := self.weights) is not None:
            total = np.where(sizes > 0, sums(w), np.nan)
            found |= figures(self.metric, sums(w * self.loss) / total, sums(w * self.score) / total, "weighted_")
        return found


def figures(metric: str, loss: Any, score: Any, prefix: str = "") -> dict[str, Any]:
    """Return mean losses and mean scores under their names: ``loss``, and ``accuracy`` or ``rmse``, the root of squares."""
    return {f"{prefix}loss": loss, f"{prefix}{metric}": np.sqrt(score) if metric == "rmse" else score}


def columns(mean: Mapping[str, float], split: str) -> dict[str, float]:
    """Return mean figures of a split under their names in the table of rounds, such as ``test_loss`` and ``test_accuracy``.

    A metric that is NaN, of outputs that cannot be compared with the targets, is left out.
    """
    return {f"{split}_{name}": float(value) for name, value in mean.items() if name == "loss" or not np.isnan(value)}


def by_labels(scores: Scores, labels: np.ndarray, groups: tuple[tuple[int, ...], ...]) -> dict[str, float]:
    """Accuracy over the examples of each group of labels, under ``accuracy_of_0_1_2_3``; groups without any are left out."""
    found = {}
    for group in groups:
        inside = np.isin(labels, group)
        if inside.any():
            found[f"accuracy_of_{'_'.join(map(str, group))}"] = float(scores.score[inside].mean())
    return found


def evaluate(
    objective: Objective,
    params: torch.Tensor,
    shards: Shards,
    transforms: tuple[Transform, ...] = (),
    *,
    outputs: bool = False,
) -> Scores:
    """Score the model at `params` on all examples of `shards`, without dropout and random transforms.

    Of several processes each has its share of the batches, and all have the scores; with `outputs`, which are also returned
    then, each has all batches.
    """
    number, weights = len(shards.x), None if shards.weights is None else shards.weights.cpu().numpy()
    if outputs:
        *scores, found, targets = objective.judged(params, _batches(shards, slice(None), transforms))
        loss, score = (each.cpu().numpy() for each in scores)
        return Scores(loss, score, shards.offsets, metric_of(shards.y), weights, found, targets)
    mine = collectives.share(-(-number // _BATCH))
    own = slice(mine.start * _BATCH, min(mine.stop * _BATCH, number))
    scores = torch.zeros((0, 2), dtype=torch.float64, device=params.device)
    if own.start < own.stop:
        scores = torch.stack(objective.evaluate(params, _batches(shards, own, transforms)), dim=1)
    if collectives.world_size() > 1:
        scores = collectives.all_gather(
            scores, torch.arange(own.start, own.start + len(scores), device=scores.device), number
        )
    loss, score = scores.T.contiguous().cpu().numpy()
    return Scores(loss, score, shards.offsets, metric_of(shards.y), weights)


def _batches(
    shards: Shards, rows: slice, transforms: tuple[Transform, ...]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield some rows of `shards` batch by batch, as the model sees them in evaluation."""
    for x, y in zip(shards.x[rows].split(_BATCH), shards.y[rows].split(_BATCH), strict=True):
        yield apply_transforms(transforms, x, None, training=False) if transforms else x, y


def thinned(shards: Shards, most: int) -> Shards:
    """At most `most` examples, evenly spaced over the clients' data, with whoever holds them: a cheap stand-in for all."""
    if len(shards.x) <= most:
        return shards
    rows = torch.linspace(0, len(shards.x) - 1, most, dtype=torch.float64).round().long()
    offsets = np.searchsorted(rows.numpy(), shards.offsets)
    rows = rows.to(shards.x.device)  # and then the inputs are in memory
    return Shards(shards.x[rows], shards.y[rows], offsets, None if shards.weights is None else shards.weights[rows])
