"""Evaluate one model on the data of all clients, in one pass over the flat tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from turnout.data.shards import Shards
from turnout.data.targets import next_tokens
from turnout.data.transforms import Transform, apply_transforms
from turnout.distributed import collectives
from turnout.engine.loss import cross_entropy
from turnout.engine.objective import Objective

Watch = Callable[[int, int], None]
"""A function that receives how many clients of how many are done."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Loss and score of every example, ``[n]``, and the client of each.

    Attributes:
        loss: the loss of each example.
        score: 1 or 0 for labels, the squared error for numbers; NaN if outputs cannot be compared with targets.
        offsets: the first example of each client, ``[N + 1]``.
        metric: ``"accuracy"``, or ``"rmse"`` for numbers.
        weights: the weight of each example in weighted means; None if there are none.
        judged: outputs and targets of all examples, if they were requested.
        tokens: number of tokens that are predicted in each text, ``[n]``; None if that is not the task.
    """

    loss: np.ndarray
    score: np.ndarray
    offsets: np.ndarray
    metric: str = "accuracy"
    weights: np.ndarray | None = None
    judged: tuple[torch.Tensor, torch.Tensor] | None = None
    tokens: np.ndarray | None = None

    @property
    def pairs(self) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """Outputs and targets by client, of clients with examples."""
        assert self.judged is not None
        sizes = np.diff(self.offsets)
        parts = zip(*(values.split(sizes.tolist()) for values in self.judged), strict=True)
        return {k: pair for k, pair in enumerate(parts) if sizes[k]}

    def mean(self) -> dict[str, float]:
        """Return mean loss and metric over all examples, perplexity of texts, and weighted means if there are weights."""
        means = figures(self.metric, self.loss.mean(), self.score.mean())
        if self.tokens is not None:
            means["perplexity"] = _exp(np.average(self.loss, weights=self.tokens))
        if (w := self.weights) is not None:
            means |= figures(
                self.metric, np.average(self.loss, weights=w), np.average(self.score, weights=w), "weighted_"
            )
        return means

    def by_client(self) -> dict[str, np.ndarray]:
        """Return mean loss and metric of each client, float64 ``[N]``; NaN for a client without examples."""
        sizes = np.diff(self.offsets)
        owner = np.repeat(np.arange(len(sizes)), sizes)

        def sums(values: np.ndarray) -> np.ndarray:
            return np.bincount(owner, weights=values, minlength=len(sizes))

        number = np.where(sizes > 0, sizes, np.nan)
        means = figures(self.metric, sums(self.loss) / number, sums(self.score) / number)
        if self.tokens is not None:
            means["perplexity"] = _exp(sums(self.loss * self.tokens) / np.where(sizes > 0, sums(self.tokens), np.nan))
        if (w := self.weights) is not None:
            total = np.where(sizes > 0, sums(w), np.nan)
            means |= figures(self.metric, sums(w * self.loss) / total, sums(w * self.score) / total, "weighted_")
        return means


def _exp(loss: Any) -> Any:
    """Return the perplexity of a mean loss, which is infinite for a large one."""
    with np.errstate(over="ignore"):
        return np.exp(loss)


def figures(metric: str, loss: Any, score: Any, prefix: str = "") -> dict[str, Any]:
    """Return mean losses and scores by name: ``loss``, and ``accuracy`` or ``rmse``, the root of the mean score."""
    return {f"{prefix}loss": loss, f"{prefix}{metric}": np.sqrt(score) if metric == "rmse" else score}


def columns(mean: Mapping[str, float], split: str) -> dict[str, float]:
    """Return mean figures of a split by their columns in the table of rounds, such as ``test_loss`` and ``test_accuracy``.

    A metric is left out if it is NaN, because outputs cannot be compared with targets.
    """
    return {f"{split}_{name}": float(value) for name, value in mean.items() if name == "loss" or not np.isnan(value)}


def by_labels(scores: Scores, labels: np.ndarray, groups: tuple[tuple[int, ...], ...]) -> dict[str, float]:
    """Return the accuracy on each group of labels, as ``accuracy_of_0_1_2_3``; groups without examples are left out."""
    accuracies = {}
    for group in groups:
        inside = np.isin(labels, group)
        if inside.any():
            accuracies[f"accuracy_of_{'_'.join(map(str, group))}"] = float(scores.score[inside].mean())
    return accuracies


def evaluate(
    objective: Objective,
    params: torch.Tensor,
    shards: Shards,
    transforms: tuple[Transform, ...] = (),
    *,
    outputs: bool = False,
    watch: Watch | None = None,
) -> Scores:
    """Score a model on all examples, without dropout and random transforms.

    Each process computes a share of the batches, and all processes get all scores. With `outputs`, each process computes all
    batches.

    Args:
        objective: model and loss.
        params: the parameters, ``[P]``.
        shards: the examples.
        transforms: transforms of examples.
        outputs: return outputs and targets as well.
        watch: receives the progress, in clients, before each batch; it may raise an error to stop.
    """
    batch, number = objective.examples_per_call, len(shards.x)
    weights = None if shards.weights is None else shards.weights.cpu().numpy()
    texts = next_tokens(shards.x, shards.y) if objective.loss is cross_entropy else None
    tokens = None if texts is None else texts.cpu().numpy()

    def batches(low: int, high: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for start in range(low, max(high, 1), batch):
            if watch is not None:
                watch(int(np.searchsorted(shards.offsets[1:], start, "right")), shards.num_clients)
            rows = slice(start, min(start + batch, high))
            x, y = shards.x[rows], shards.y[rows]
            yield apply_transforms(transforms, x, None, training=False) if transforms else x, y

    if outputs:
        *scores, values, targets = objective.judged(params, batches(0, number))
        loss, score = (column.cpu().numpy() for column in scores)
        return Scores(loss, score, shards.offsets, objective.metric(shards.y), weights, (values, targets), tokens)
    share = collectives.share(-(-number // batch))
    low, high = share.start * batch, min(share.stop * batch, number)
    scores = torch.zeros((0, 2), dtype=torch.float64, device=params.device)
    if low < high:
        scores = torch.stack(objective.evaluate(params, batches(low, high)), dim=1)
    if collectives.world_size() > 1:
        index = torch.arange(low, low + len(scores), device=scores.device)
        scores = collectives.all_gather(scores, index, number)
    loss, score = scores.T.contiguous().cpu().numpy()
    return Scores(loss, score, shards.offsets, objective.metric(shards.y), weights, tokens=tokens)


def thinned(shards: Shards, most: int) -> Shards:
    """Return at most `most` examples, evenly spaced over the data of all clients, with their clients."""
    if len(shards.x) <= most:
        return shards
    return shards.at(torch.linspace(0, len(shards.x) - 1, most, dtype=torch.float64).round().long())
