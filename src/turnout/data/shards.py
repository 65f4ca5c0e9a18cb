"""Hold the examples of many clients as flat tensors with offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from turnout.core.checks import DataError, counted
from turnout.data.targets import check_finite, described
from turnout.data.weights import check_weights


@dataclass(frozen=True, eq=False)
class Shards:
    """The examples of many clients, concatenated in one tensor.

    Client `k` has rows ``offsets[k]:offsets[k + 1]`` of `x` and `y`. Only its offset is stored per client.

    Attributes:
        x: inputs ``[n, ...]``, any dtype.
        y: targets ``[n, ...]``: int64 class labels ``[n]``, or floating-point numbers to predict.
        offsets: int64 NumPy array ``[N + 1]``, ascending from 0 to n.
        weights: weights of examples, floating point ``[n]``, > 0; None is equal weights.
        mapped: `x` is a memory-mapped file, of which only the rows in use are read; see `turnout.data.store`.

    Raises:
        DataError: if shapes disagree, offsets do not ascend from 0 to n, inputs contain NaN or infinity, or a weight is
            not positive.
    """

    x: torch.Tensor
    y: torch.Tensor
    offsets: np.ndarray
    weights: torch.Tensor | None = None
    mapped: bool = False

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise DataError(f"inputs and targets differ in number: {len(self.x)} inputs, {len(self.y)} targets")
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(self.x):
            raise DataError(f"offsets must run from 0 to the number of examples, {len(self.x)}")
        if (sizes := np.diff(offsets)).min(initial=0) < 0:
            raise DataError(f"offsets must ascend, and client {sizes.argmin()} would have {sizes.min()} examples")
        if not self.mapped:
            check_finite("inputs", self.x, "clean or impute them before training")
        check_weights("weights", self.weights, len(self.x))

    def __repr__(self) -> str:
        return f"Shards({counted(self.num_clients, 'client')}, {described(self.x)})"

    @property
    def num_clients(self) -> int:
        """The number of clients (N)."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Number of examples of each client, int64 ``[N]``."""
        return np.diff(self.offsets)

    @cached_property
    def largest(self) -> int:
        """The largest number of examples of a client, 0 without clients; cached, because every round needs it."""
        return int(self.sizes.max(initial=0))

    def is_ragged(self, batch_size: int, drop_last: bool) -> bool:
        """Return whether some minibatch of a pass over a client's data is incomplete.

        Args:
            batch_size: number of examples in a minibatch.
            drop_last: whether a client leaves out an incomplete last minibatch, unless it is the only one.
        """
        key = (batch_size, drop_last)
        if key not in self._ragged:
            sizes = self.sizes
            self._ragged[key] = bool(((sizes < batch_size) if drop_last else sizes % batch_size).any())
        return self._ragged[key]

    @cached_property
    def _ragged(self) -> dict[tuple[int, bool], bool]:
        return {}

    def client(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of client `k`, as views."""
        rows = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
        return self.x[rows], self.y[rows]

    def only(self, k: int) -> Shards:
        """Return the examples of client `k` alone, as views."""
        rows = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], offsets=np.array([0, len(self.y[rows])]), weights=weights)

    def owners(self) -> torch.Tensor:
        """Return the client of every row, int64 ``[n]``."""
        return torch.from_numpy(np.repeat(np.arange(self.num_clients), self.sizes))

    def at(self, rows: torch.Tensor) -> Shards:
        """Return the examples in these rows, ascending, with their clients. Mapped inputs are copied into memory."""
        offsets, rows = np.searchsorted(rows.numpy(), self.offsets), rows.to(self.x.device)
        return Shards(self.x[rows], self.y[rows], offsets, None if self.weights is None else self.weights[rows])

    def label_counts(self, num_classes: int) -> np.ndarray:
        """Return the number of examples of each class at each client, int64 ``[N, C]``."""
        index = self.owners() * num_classes + self.y
        return torch.bincount(index, minlength=self.num_clients * num_classes).reshape(-1, num_classes).numpy()

    def to(self, device: torch.device) -> Shards:
        """Return the shards with tensors on `device`; offsets stay on the host."""
        weights = None if self.weights is None else self.weights.to(device)
        return replace(self, x=self.x.to(device), y=self.y.to(device), weights=weights)

    @classmethod
    def pooled(cls, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor | None = None) -> Shards:
        """Return all examples as those of a single holder, for a test set that belongs to no client."""
        return cls(x, y, np.array([0, len(x)]), weights)
