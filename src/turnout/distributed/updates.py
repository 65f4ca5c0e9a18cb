"""Update matrices whose rows are on several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from turnout.core.updates import Columnwise, Dense, Updates, block_columns
from turnout.distributed import collectives


class Sharded(Updates):
    """A matrix whose rows are distributed over processes. All processes must call the same operations, in the same order.

    Args:
        local: the rows of this process, ``[b, P]``.
        index: the indices of these rows in the matrix, int64 ``[b]``, on the same device.
        num_rows: B.
    """

    def __init__(self, local: torch.Tensor, index: torch.Tensor, num_rows: int) -> None:
        self.local, self.index = local, index
        self.shape, self.dtype, self.device = torch.Size((num_rows, *local.shape[1:])), local.dtype, local.device

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum over processes of the sums of their rows."""
        return collectives.all_reduce(Dense(self.local).weighted_sum(weights[self.index])).to(dtype)

    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the products, each computed by the process of its row."""
        return self._gather(Dense(self.local).inner(vector))

    def norms(self) -> torch.Tensor:
        """Return the norms, each computed by the process of its row."""
        return self._gather(Dense(self.local).norms())

    def shortened(self, norm: float) -> Sharded:
        """Return the matrix with clipped rows, each clipped by its process."""
        return Sharded(Dense(self.local).shortened(norm).rows, self.index, len(self))

    def gram(self) -> torch.Tensor:
        """Return the products: each process computes those of a part of the columns, which are summed."""
        total = torch.zeros((len(self), len(self)), dtype=torch.float64, device=self.device)
        for block in self._my_blocks():
            if block is not None:
                total += Dense(block).gram()
        return collectives.all_reduce(total)

    def columnwise(self, function: Columnwise) -> torch.Tensor:
        """Return the function's values: each process computes those of a part of the columns."""
        width = block_columns(len(self), self.device)
        columns = torch.arange(self.shape[1], device=self.device)
        blocks = zip(self._my_blocks(), columns.split(width), strict=True)
        computed = [(function(block), index) for block, index in blocks if block is not None]
        # A process without columns learns the type of values from those of no columns.
        values = [value for value, _ in computed] or [function(self.local.new_zeros((len(self), 0)))]
        indices = [index for _, index in computed] or [columns[:0]]
        return collectives.all_gather(torch.cat(values), torch.cat(indices), self.shape[1])

    def _my_blocks(self) -> Iterator[torch.Tensor | None]:
        """Yield all rows of each block of columns, ``[B, p]``; None for blocks of other processes."""
        for number, block in enumerate(self.local.split(block_columns(len(self), self.device), dim=1)):
            rank = number % collectives.world_size()
            yield collectives.gather(block, self.index, len(self), rank)

    def take(self, index: torch.Tensor) -> Sharded:
        """Return the rows at these positions; each stays on its process."""
        row_of = torch.full((len(self),), -1, dtype=torch.int64, device=self.device)  # the local row of each row
        row_of[self.index] = torch.arange(len(self.index), device=self.device)
        rows = row_of[index]
        local_index = (rows >= 0).nonzero()[:, 0]
        return Sharded(self.local[rows[local_index]], local_index, len(index))

    def where(self, mask: torch.Tensor) -> Sharded:
        """Return the matrix with zeros in the other rows."""
        return Sharded(Dense(self.local).where(mask[self.index]).rows, self.index, len(self))

    def finite(self) -> torch.Tensor:
        """Return which rows are finite, each checked by its process."""
        return self._gather(Dense(self.local).finite())

    def gathered(self) -> torch.Tensor:
        """Return all rows, on every process."""
        return collectives.all_gather(self.local, self.index, len(self))

    def joined(self, others: Sequence[Sharded]) -> Sharded:
        """Return these rows and then those of the others."""
        parts = (self, *others)
        ends = np.cumsum([0, *map(len, parts)]).tolist()
        index = torch.cat([part.index + start for part, start in zip(parts, ends[:-1], strict=True)])
        return Sharded(torch.cat([part.local for part in parts]), index, ends[-1])

    def _gather(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of all rows, ``[B]``, from those of the local rows, ``[b]``."""
        return collectives.all_gather(values, self.index, len(self))
