"""Start local training from a learned mixture of the received model and the client's last model (FedALA)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import Correction, MemoryShapes, Traits
from turnout.core.device import to_device
from turnout.core.random import stream
from turnout.core.ranges import Count, Positive, Probability
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.engine.parameter_names import check_patterns, elements_of
from turnout.pieces.local.descent import minibatches_of
from turnout.pieces.local.minibatches import Plan, batches_per_pass, plan
from turnout.pieces.local.pair_steps import PairSteps

_PURPOSE = "aggregation"  # name of the stream of random numbers
_TOLERANCE = 8  # rounding errors of two models that count as equal

RECENT = 10
"""Number of passes over which the standard deviation of the loss is taken, as in the authors' code."""


@dataclass(frozen=True)
class AggregationSteps(PairSteps):
    """Start local SGD from a learned elementwise mixture of the received model and the client's last model (FedALA).

    Let w be the received model and v the client's model after its last round. Before its local steps, a client learns
    the weights W of the mixture ``m = v + (w - v) W``, one weight in [0, 1] per parameter, initially 1, on minibatches
    of a random sample of its data::

        W <- clip(W - weight_lr grad F(m) (w - v), 0, 1)

    Only the weights of the layers named by `parameters` are learned; the others stay 1, so that lower layers start from
    the received model. A client makes one pass over the sample; in its first aggregation it repeats passes until the
    standard deviation of the loss on the last minibatch over `RECENT` passes is below `threshold`. If w and v are
    equal up to rounding, as in a client's first round or after a round in which it was alone, nothing is learned. The
    client reports ``v' - w``, where v' is its model after the local steps.

    This follows the authors' code, with three differences: the sample is random and not a contiguous part of the data,
    the number of passes is at most `most_passes`, and absent clients do nothing.

    Args:
        parameters: the higher layers, whose weights are learned: ``"head"`` (the last layer), ``"all"``, ``"none"``, or
            one or several patterns of parameter names.
        share: share of a client's examples in the sample, in [0, 1]; at least one minibatch is drawn.
        weight_lr: step size of the weights (the paper's eta), > 0.
        threshold: standard deviation of the loss below which the first aggregation ends, > 0.
        most_passes: largest number of passes in a client's first aggregation, >= 1.

    Raises:
        ConfigurationError: if a number is out of range, or if a pattern matches no parameter of the model.

    Example:
        >>> import turnout as to
        >>> steps = AggregationSteps.of(to.Sgd(lr=0.1, steps=3), share=0.5)
        >>> steps.share, steps.lr
        (0.5, 0.1)

    Reference: Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023 (arXiv
    2212.01197).
    """

    kept_by = "AggregatedModel"
    needs_plain = False

    parameters: str | tuple[str, ...] = "head"
    share: Probability = 0.8
    weight_lr: Positive = 1.0
    threshold: Positive = 0.1
    most_passes: Count = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_patterns("parameters", self.parameters)

    @property
    def traits(self) -> Traits:
        """Those of `Sgd`, but weights of a mixture are learned, too."""
        why = "weights of a mixture are learned by gradients, and running statistics have none"
        return replace(super().traits, refuses_batch_norm=why)

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the memory of plain SGD on a single model."""
        return super().memory((num_params - 1) // 3, dtype)

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Learn the weights, descend from the mixture, and report the update of w beside that of the client's row.

        The parameters of the task are laid out as `_parts` reads them.
        """
        received, last, before, learned = _parts(task.params)
        weights = self._learn(task, clients) if task.phase == "train" else before
        start = torch.lerp(last, received, weights)
        report = super().train(replace(task, params=start), memory, clients, corrections)
        model = start + report.delta
        learns = _differ(received, last)[:, None].to(learned.dtype).maximum(learned)
        moved = model - received, model - last, weights - before, learns - learned
        return replace(report, delta=torch.cat(moved, dim=1))

    def _learn(self, task: Task, clients: Clients) -> torch.Tensor:
        """Return the weights W after the passes of this round, ``[B, P]``."""
        received, last, before, learned = _parts(task.params)
        weights, loss = before.clone(), before.new_zeros(len(before))
        factor = self.weight_lr * elements_of(self.parameters, clients.objective.network).to(last)
        sample = self._sample(task, clients)
        examples, mask, keys = minibatches_of(sample, task, np.arange(len(clients)), clients, _PURPOSE)
        number = to_device(sample.num_steps, task.params.device)
        lanes, losses = _differ(received, last).nonzero()[:, 0], list[torch.Tensor]()
        while len(lanes) and len(losses) < self.most_passes:
            for step in range(int(number[lanes].max())):
                rows = lanes[number[lanes] > step]
                inside, of_step = None if mask is None else mask[step, rows], keys[step, rows]
                x, y = clients.minibatch(examples[step, rows], of_step)
                mixture = torch.lerp(last[rows], received[rows], weights[rows])
                loss[rows], gradient = clients.objective.gradient(mixture, x, y, inside, of_step)
                slope = gradient * (received[rows] - last[rows])
                weights[rows] = (weights[rows] - factor * slope).clamp(0.0, 1.0)
            losses.append(loss.clone())
            unsettled = learned[lanes, 0] == 0
            if len(losses) > RECENT:
                unsettled &= torch.stack(losses[-RECENT:])[:, lanes].std(dim=0, correction=0) >= self.threshold
            lanes = lanes[unsettled]
        return weights

    def _sample(self, task: Task, clients: Clients) -> Plan:
        """Return minibatches of a random share of each client's data, drawn anew in every round; at least one each."""
        sampled = np.maximum((self.share * clients.num_examples).astype(np.int64), 1)
        return plan(
            offsets=clients.shards.offsets[clients.rows],
            sizes=clients.num_examples,
            clients=clients.ids,
            versions=task.draws(len(clients)),
            done=np.zeros_like(sampled),
            num_steps=batches_per_pass(sampled, self.batch_size, drop_last=True),
            batch_size=self.batch_size,
            sampling="fresh",
            drop_last=True,
            seed=stream(_PURPOSE, task.seed),
        )


def _differ(received: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Return where two models differ by more than rounding, bool ``[B]``; a mean of one model is not exactly that model."""
    tolerance = _TOLERANCE * torch.finfo(received.dtype).eps
    return (received - last).norm(dim=1) > tolerance * (received.norm(dim=1) + last.norm(dim=1))


def _parts(params: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Split rows ``[B, 3 P + 1]`` into w, v and W, ``[B, P]`` each, and 1 if W was learned before, ``[B, 1]``."""
    size = params.shape[1] // 3
    return params.split([size, size, size, 1], dim=1)
