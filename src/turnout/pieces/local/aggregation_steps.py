"""Start local training from a learned mixture of the received model and the client's last model (FedALA)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

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
from turnout.pieces.local.minibatches import batches_per_pass, plan
from turnout.pieces.local.pair_steps import PairSteps

GradientOf = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Function from parameters ``[b, P]`` to the loss ``[b]`` and gradient ``[b, P]`` on one minibatch of b clients."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Minibatches of a random share of the data of B clients, drawn anew in every round; every client has at least one.

    Attributes:
        clients: the clients.
        num_steps: number of minibatches of each client, int64 ``[B]``.
        examples, mask, keys: the minibatches, as `minibatches_of` returns them.
    """

    clients: Clients
    num_steps: torch.Tensor
    examples: torch.Tensor
    mask: torch.Tensor | None
    keys: torch.Tensor

    @classmethod
    def of(cls, task: Task, clients: Clients, share: float, batch_size: int, purpose: str) -> Self:
        """Draw a sample.

        Args:
            task: the task, whose seed and version determine the draw.
            clients: the clients, whose data are sampled.
            share: share of a client's examples, in [0, 1].
            batch_size: number of examples in a minibatch.
            purpose: name of the stream of random numbers.
        """
        sampled = np.maximum((share * clients.num_examples).astype(np.int64), 1)
        planned = plan(
            offsets=clients.shards.offsets[clients.rows],
            sizes=clients.num_examples,
            clients=clients.ids,
            versions=task.draws(len(clients)),
            done=np.zeros_like(sampled),
            num_steps=batches_per_pass(sampled, batch_size, drop_last=True),
            batch_size=batch_size,
            sampling="fresh",
            drop_last=True,
            seed=stream(purpose, task.seed),
        )
        num_steps = to_device(planned.num_steps, task.params.device)
        return cls(clients, num_steps, *minibatches_of(planned, task, np.arange(len(clients)), clients, purpose))

    def steps(self, lanes: torch.Tensor) -> Iterator[tuple[torch.Tensor, GradientOf]]:
        """Yield the steps of one pass: the clients with a further minibatch, int64 ``[b]``, and their `GradientOf`.

        Args:
            lanes: the clients that take the pass, int64.
        """
        number = self.num_steps[lanes]
        for step in range(int(number.max()) if len(lanes) else 0):
            rows = lanes[number > step]
            inside, keys = None if self.mask is None else self.mask[step, rows], self.keys[step, rows]
            x, y = self.clients.minibatch(self.examples[step, rows], keys)
            yield (
                rows,
                lambda params, x=x, y=y, mask=inside, keys=keys: self.clients.objective.gradient(
                    params, x, y, mask, keys
                ),
            )


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
        sample = Sample.of(task, clients, self.share, self.batch_size, "aggregation")
        lanes, losses = _differ(received, last).nonzero()[:, 0], list[torch.Tensor]()
        while len(lanes) and len(losses) < self.most_passes:
            for rows, gradient_at in sample.steps(lanes):
                loss[rows], gradient = gradient_at(torch.lerp(last[rows], received[rows], weights[rows]))
                slope = gradient * (received[rows] - last[rows])
                weights[rows] = (weights[rows] - factor * slope).clamp(0.0, 1.0)
            losses.append(loss.clone())
            unsettled = learned[lanes, 0] == 0
            if len(losses) > RECENT:
                unsettled &= torch.stack(losses[-RECENT:])[:, lanes].std(dim=0, correction=0) >= self.threshold
            lanes = lanes[unsettled]
        return weights


def _differ(received: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Return where two models differ by more than rounding, bool ``[B]``; a mean of one model is not exactly that model."""
    tolerance = _TOLERANCE * torch.finfo(received.dtype).eps
    return (received - last).norm(dim=1) > tolerance * (received.norm(dim=1) + last.norm(dim=1))


def _parts(params: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Split rows ``[B, 3 P + 1]`` into w, v and W, ``[B, P]`` each, and 1 if W was learned before, ``[B, 1]``."""
    size = params.shape[1] // 3
    return params.split([size, size, size, 1], dim=1)
