"""FedALA's local steps: from a mixture of the received model and the client's last one, whose weights are learnt first."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.core.checks import count, positive, probability
from turnout.core.device import to_device
from turnout.core.random import stream
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.engine.parameter_names import check_patterns, names_of
from turnout.pieces.base import Correction, MemoryShapes
from turnout.pieces.local.descent import minibatches_of
from turnout.pieces.local.minibatches import Plan, batches_per_pass, plan
from turnout.pieces.local.pairs import PairSteps

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

        The task's parameters are w, v, W, and 1 where W was learnt before, ``[B, 3 P + 1]``.
        """
        size = clients.objective.layout.num_params
        received, last, before, learnt = task.params.split([size, size, size, 1], dim=1)
        weights = before
        if task.phase == "train":
            weights = self._learn(task, last, received, before, learnt[:, 0] > 0, clients)
        start = mixture(last, received, weights)
        report = super().train(replace(task, params=start), memory, clients, corrections)
        model = start + report.delta
        learns = (received != last).any(dim=1, keepdim=True).to(learnt.dtype).maximum(learnt)
        row = model - last, weights - before, learns - learnt
        return replace(report, delta=torch.cat([model - received, *row], dim=1))

    def _learn(
        self,
        task: Task,
        last: torch.Tensor,
        received: torch.Tensor,
        weights: torch.Tensor,
        settled: torch.Tensor,
        clients: Clients,
    ) -> torch.Tensor:
        """Return the weights ``[B, P]`` after the passes of this round.

        Args:
            task, clients: as in `train`.
            last, received, weights: v, w and W before, ``[B, P]``.
            settled: which clients have learnt weights before, bool ``[B]``.
        """
        planned, device = self._sample(task, clients), last.device
        # Clients with more minibatches first, so that those who have one left are always the first rows.
        order = np.argsort(-planned.num_steps, kind="stable")
        rows, num_steps = to_device(order, device), to_device(planned.num_steps[order], device)
        last, received, weights, settled = last[rows], received[rows], weights[rows], settled[rows]
        sample = _Sample(clients, num_steps, *minibatches_of(planned, task, order, clients, "aggregation"))
        factor = self._step_sizes_of_weights(clients.objective).to(last)
        lanes, losses = (received != last).any(dim=1).nonzero()[:, 0], list[torch.Tensor]()
        for number in range(self.most_passes):
            if not len(lanes):
                break
            weights[lanes], loss = sample.one_pass(lanes, last[lanes], received[lanes], weights[lanes], factor)
            losses = [*losses[-RECENT + 1 :], loss]
            goes_on = ~settled[lanes]
            if number >= RECENT:
                goes_on &= torch.stack(losses).std(dim=0, correction=0) >= self.threshold
            lanes, losses = lanes[goes_on], [value[goes_on] for value in losses]
        return weights[torch.argsort(rows)]

    def _sample(self, task: Task, clients: Clients) -> Plan:
        """Return the minibatches of each client's sample: the first of a shuffle of its data, anew in every round."""
        sizes = clients.num_examples
        sampled = np.maximum((self.share * sizes).astype(np.int64), 1)
        return plan(
            offsets=clients.shards.offsets[clients.rows],
            sizes=sizes,
            clients=clients.ids,
            versions=task.draws(len(clients)),
            done=np.zeros_like(sizes),
            num_steps=batches_per_pass(sampled, self.batch_size, drop_last=True),
            batch_size=self.batch_size,
            sampling="fresh",
            drop_last=True,
            seed=stream("aggregation", task.seed),
        )

    def _step_sizes_of_weights(self, objective: Objective) -> torch.Tensor:
        """Return the step size of each weight, ``[P]``: 0 below the higher layers."""
        higher, layout = names_of(self.parameters, objective.network.module), objective.layout
        sizes = torch.tensor([self.weight_lr if name in higher else 0.0 for name in layout.names], dtype=torch.float64)
        return sizes.repeat_interleave(torch.tensor(layout.sizes))


@dataclass(frozen=True, eq=False)
class _Sample:
    """Minibatches of a sample of each client's data, clients with more of them before those with fewer.

    Args:
        clients: whose objective it is.
        num_steps: minibatches of each client, int64 ``[B]``.
        examples: positions in the flat data, ``[S, B, M]``.
        mask: 1, or its weight, for an example and 0 for padding, as `examples`; None where nothing is padded or weighted.
        keys: 64 random bits of each minibatch, ``[S, B]``.
    """

    clients: Clients
    num_steps: torch.Tensor
    examples: torch.Tensor
    mask: torch.Tensor | None
    keys: torch.Tensor

    def one_pass(
        self,
        lanes: torch.Tensor,
        last: torch.Tensor,
        received: torch.Tensor,
        weights: torch.Tensor,
        factor: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights after a pass, ``[b, P]``, and the loss on the last minibatch of each client, ``[b]``.

        Args:
            lanes: which clients learn, ascending, int64 ``[b]``.
            last, received, weights: v, w and W of these, ``[b, P]``; `weights` is changed.
            factor: step size of each weight, ``[P]``.
        """
        losses, num_steps = weights.new_zeros(len(lanes)), self.num_steps[lanes]
        for step in range(int(num_steps.max())):
            n = int((num_steps > step).sum())
            active = lanes[:n]
            keys, inside = self.keys[step, active], None if self.mask is None else self.mask[step, active]
            x, y = self.clients.minibatch(self.examples[step, active], keys)
            params = mixture(last[:n], received[:n], weights[:n])
            losses[:n], gradient = self.clients.objective.gradient(params, x, y, inside, keys)
            weights[:n] = (weights[:n] - factor * gradient * (received[:n] - last[:n])).clamp(0.0, 1.0)
        return weights, losses


def mixture(last: torch.Tensor, received: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return ``v + (w - v) W``, which is w itself where W is 1."""
    return torch.lerp(last, received, weights)
