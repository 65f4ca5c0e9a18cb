"""Clients at the model they received, before any step: their full local loss and gradient."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from turnout.core.clients import Clients
from turnout.core.types import Task

BLOCK = 128
"""Examples of a client that are differentiated at a time."""


class Start:
    """What B clients find at the model of a task, computed when it is first asked for, and once.

    Args:
        task: the model they received.
        clients: who they are.

    Attributes:
        params: that model, ``[P]`` or ``[B, P]``.
        clients: as given.
    """

    def __init__(self, task: Task, clients: Clients) -> None:
        self.params, self.clients = task.params, clients

    @cached_property
    def _both(self) -> tuple[torch.Tensor, torch.Tensor]:
        return full_gradient(self.clients, self.params)

    @property
    def known(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Loss and gradient, if somebody has asked for them."""
        return self.__dict__.get("_both")

    @property
    def gradient(self) -> torch.Tensor:
        """``grad F_k(w^t)`` over all of a client's examples, ``[B, P]``."""
        return self._both[1]

    @property
    def loss(self) -> torch.Tensor:
        """``F_k(w^t)`` over all of a client's examples, ``[B]``."""
        return self._both[0]


def full_gradient(clients: Clients, params: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss ``[B]`` and gradient ``[B, P]`` of each client's whole data, without dropout and random transforms.

    Goes through the clients' data in blocks, all clients at once; those with more examples go on after the others.

    Args:
        params: where, ``[P]`` for all or ``[B, P]``.
    """
    device, order = params.device, np.argsort(-clients.num_examples, kind="stable")
    sizes, begin = clients.num_examples[order], clients.shards.offsets[clients.rows][order]
    params = params.expand(len(order), -1) if params.dim() == 1 else params[torch.from_numpy(order).to(device)]
    loss, gradient = params.new_zeros(len(order)), torch.zeros_like(params)
    # As wide as the data need and whoever else is in the cohort: sums must not depend on how a cohort is cut.
    width = min(BLOCK, int(clients.shards.sizes.max(initial=1)))
    keys = torch.zeros(len(order), dtype=torch.int64, device=device)
    for low in range(0, int(sizes.max(initial=0)), width):
        active = int((sizes > low).sum())
        counts = np.minimum(sizes[:active] - low, width)[:, None]
        examples = begin[:active, None] + low + np.minimum(np.arange(width), counts - 1)
        x, y = clients.minibatch(torch.from_numpy(examples).to(device), None)
        inside = torch.from_numpy(np.arange(width) < counts).to(device, params.dtype)
        mask = None if (counts == width).all() else inside
        some, direction = clients.objective.gradient(params[:active], x, y, mask, keys[:active], training=False)
        share = torch.from_numpy(counts / sizes[:active, None]).to(device, params.dtype)
        loss[:active] += some * share[:, 0]
        gradient[:active].addcmul_(direction, share)
    back = torch.from_numpy(np.argsort(order)).to(device)
    return loss[back], gradient[back]
