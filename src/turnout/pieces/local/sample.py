"""Take passes over a random sample of each client's data, beside the minibatches of the local steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.core.random import stream
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.pieces.local.descent import minibatches_of
from turnout.pieces.local.minibatches import batches_per_pass, plan

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
