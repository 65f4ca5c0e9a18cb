"""Define the order in which a local rule processes clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from turnout.core.device import to_device


@dataclass(frozen=True, eq=False)
class Lanes:
    """The order in which a local rule processes B clients, and their numbers of local steps.

    Attributes:
        order: the row of the client in each lane, int64 ``[B]``, on the host.
        num_steps: the local steps of each lane, int64 ``[B]``, on the host.

    Example:
        >>> lanes = Lanes.by_steps(np.array([1, 3, 2]))
        >>> lanes.order, lanes.num_steps
        (array([1, 2, 0]), array([3, 2, 1]))
        >>> lanes.back(lanes.of(torch.tensor([10, 30, 20])))
        tensor([10, 30, 20])
    """

    order: np.ndarray
    num_steps: np.ndarray

    @classmethod
    def by_steps(cls, num_steps: np.ndarray) -> Lanes:
        """Return the lanes by descending number of local steps, int64 ``[B]``.

        The clients that still train are then always in the first lanes: a slice, which needs no copy.
        """
        order = np.argsort(-num_steps, kind="stable")
        return cls(order, num_steps[order])

    def part(self, lanes: slice) -> Lanes:
        """Return a slice of the lanes."""
        return Lanes(self.order[lanes], self.num_steps[lanes])

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows ``[B, ...]`` of clients in the order of the lanes."""
        return rows[to_device(self.order, rows.device)]

    def back(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows ``[B, ...]`` of lanes in the order of the clients; without a copy if the orders are the same."""
        return rows if self._is_identity else rows[to_device(np.argsort(self.order), rows.device)]

    @cached_property
    def _is_identity(self) -> bool:
        return bool((self.order == np.arange(len(self.order))).all())
