"""Begin local steps at a learnt mixture of the received model and the client's last one (FedALA)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.core.checks import count, positive, probability
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.engine.parameter_names import check_patterns, elements_of
from turnout.pieces.base import Correction, MemoryShapes
from turnout.pieces.local.pair_steps import PairSteps
from turnout.pieces.local.sample import Sample

RECENT = 10
"""Passes over whose losses the standard deviation is taken, as in the authors' code."""


@dataclass(frozen=True)
class AggregationSteps(PairSteps):
    """Local SGD from ``m = v + (w - v) W``, of the received model w and the client's last one v, number by number (FedALA).

    Before the local steps, each client learns W, in [0, 1] and 1 at first, on minibatches of a sample of its data::

        W <- clip(W - weight_lr grad F(m) (w - v), 0, 1)

    W stays 1 below the layers that `parameters` names. One pass over the sample is made. In a client's first aggregation
    passes are repeated until the standard deviation of the loss on the last minibatch, over `RECENT` passes, is below
    `threshold`. Where w and v are the same, as when all clients begin, nothing is learnt. The report is about w:
    ``v' - w``, with v' the model after the local steps.

    As in the authors' code, except that a sample is drawn at random and not as a stretch of the data, that there are at
    most `most_passes` passes, and that clients who stay away do nothing.

    Args:
        parameters: of the higher layers, whose weights are learnt: ``"head"`` (the last layer), ``"all"``, ``"none"``, a
            pattern of names, or several.
        share: of a client's examples that is sampled; at least one minibatch is taken.
        weight_lr: step size of the weights (eta).
        threshold: of the standard deviation.
        most_passes: over the sample, in a client's first aggregation.

    Raises:
        ConfigurationError: for numbers out of range, and for a pattern that matches no parameter of the model.

    Example:
        >>> import turnout as to
        >>> steps = AggregationSteps.of(to.Sgd(lr=0.1, steps=3), share=0.5)
        >>> steps.share, steps.lr
        (0.5, 0.1)

    Reference: Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023 (arXiv
    2212.01197).
    """

    refuses_batch_norm = "weights of a mixture are learnt by gradients, and running statistics have none"
    kept_by = "AggregatedModel"
    needs_plain = False

    parameters: str | tuple[str, ...] = "head"
    share: float = 0.8
    weight_lr: float = 1.0
    threshold: float = 0.1
    most_passes: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_patterns("parameters", self.parameters)
        probability("share", self.share)
        positive("weight_lr", self.weight_lr)
        positive("threshold", self.threshold)
        count("most_passes", self.most_passes)

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return what plain steps of one model remember."""
        return super().memory((num_params - 1) // 3, dtype)

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Learn the weights, descend from the mixture, and report the update of w and that of the row.

        The task's parameters are those of `_parts`.
        """
        received, last, before, learnt = _parts(task.params)
        weights = self._learn(task, clients) if task.phase == "train" else before
        start = torch.lerp(last, received, weights)
        report = super().train(replace(task, params=start), memory, clients, corrections)
        model = start + report.delta
        learns = (received != last).any(dim=1, keepdim=True).to(learnt.dtype).maximum(learnt)
        moved = model - received, model - last, weights - before, learns - learnt
        return replace(report, delta=torch.cat(moved, dim=1))

    def _learn(self, task: Task, clients: Clients) -> torch.Tensor:
        """Return the weights W after the passes of this round, ``[B, P]``."""
        received, last, before, learnt = _parts(task.params)
        weights, loss = before.clone(), before.new_zeros(len(before))
        factor = self.weight_lr * elements_of(self.parameters, clients.objective.network).to(last)
        sample = Sample.of(task, clients, self.share, self.batch_size, "aggregation")
        lanes, losses = (received != last).any(dim=1).nonzero()[:, 0], list[torch.Tensor]()
        while len(lanes) and len(losses) < self.most_passes:
            for rows, gradient_at in sample.steps(lanes):
                loss[rows], gradient = gradient_at(torch.lerp(last[rows], received[rows], weights[rows]))
                slope = gradient * (received[rows] - last[rows])
                weights[rows] = (weights[rows] - factor * slope).clamp(0.0, 1.0)
            losses.append(loss.clone())
            unsettled = learnt[lanes, 0] == 0
            if len(losses) > RECENT:
                unsettled &= torch.stack(losses[-RECENT:])[:, lanes].std(dim=0, correction=0) >= self.threshold
            lanes = lanes[unsettled]
        return weights


def _parts(params: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return w, v and W, ``[B, P]``, and 1 where W was learnt before, ``[B, 1]``, of ``[B, 3 P + 1]``."""
    size = params.shape[1] // 3
    return params.split([size, size, size, 1], dim=1)
