"""Define the order in which a local rule processes clients."""

from __future__ import annotations

from collections.abc import Sequence
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
        real: positions of the lanes that are not idle (see `padded`), int64; None is all lanes.

    Example:
        >>> lanes = Lanes.by_steps(np.array([1, 3, 2]))
        >>> lanes.order, lanes.num_steps
        (array([1, 2, 0]), array([3, 2, 1]))
        >>> lanes.back(lanes.of(torch.tensor([10, 30, 20])))
        tensor([10, 30, 20])
    """

    order: np.ndarray
    num_steps: np.ndarray
    real: np.ndarray | None = None

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

    def padded(self, parts: Sequence[slice], numbers: Sequence[int]) -> tuple[Lanes, list[slice]]:
        """Add idle lanes at the end of each part, which repeat its last lane, and return the lanes and the new parts.

        Args:
            parts: consecutive slices of all lanes.
            numbers: the number of lanes of each part with its idle ones.

        Example:
            >>> lanes, parts = Lanes.by_steps(np.array([1, 3, 2])).padded([slice(0, 3)], [4])
            >>> lanes.order, lanes.num_steps, parts
            (array([1, 2, 0, 0]), array([3, 2, 1, 1]), [slice(0, 4, None)])
            >>> lanes.back(lanes.of(torch.tensor([10, 30, 20])))
            tensor([10, 30, 20])
        """
        if sum(numbers) == len(self.order):
            return self, list(parts)
        ends = np.cumsum(numbers)
        rows = [
            np.minimum(np.arange(part.start, part.start + number), part.stop - 1)
            for part, number in zip(parts, numbers, strict=True)
        ]
        index = np.concatenate(rows)
        real = np.flatnonzero(np.diff(index, prepend=-1))
        padded = [slice(int(end) - number, int(end)) for end, number in zip(ends, numbers, strict=True)]
        return Lanes(self.order[index], self.num_steps[index], real), padded

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows ``[B, ...]`` of clients in the order of the lanes."""
        return rows[to_device(self.order, rows.device)]

    def back(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows ``[B, ...]`` of lanes in the order of the clients; without a copy if the orders are the same."""
        lane = self._lane
        if (lane == np.arange(len(lane))).all():
            return rows[: len(lane)] if len(rows) > len(lane) else rows
        return rows[to_device(lane, rows.device)]

    @cached_property
    def _lane(self) -> np.ndarray:
        """The lane of each client, int64 ``[B]``."""
        return np.argsort(self.order) if self.real is None else self.real[np.argsort(self.order[self.real])]
