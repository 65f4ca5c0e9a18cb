"""Update matrices whose rows are in several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from turnout.core.updates import Columnwise, Dense, Updates, block_columns
from turnout.distributed import collectives


class Sharded(Updates):
    """Rows that several processes hold, each some of them; all must ask for the same, at the same time.

    Args:
        own: rows of this process, ``[b, P]``.
        place: which rows of the whole they are, int64 ``[b]``, on the same device.
        num_rows: B.
    """

    def __init__(self, own: torch.Tensor, place: torch.Tensor, num_rows: int) -> None:
        self.own, self.place = own, place
        self.shape, self.dtype, self.device = torch.Size((num_rows, *own.shape[1:])), own.dtype, own.device

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum of what each process sums of its own."""
        return collectives.all_reduce(Dense(self.own).weighted_sum(weights[self.place])).to(dtype)

    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the products, each computed where its row is."""
        return self._each(Dense(self.own).inner(vector))

    def norms(self) -> torch.Tensor:
        """Return the lengths, each computed where its row is."""
        return self._each(Dense(self.own).norms())

    def shortened(self, norm: float) -> Sharded:
        """Return the matrix with no row longer than `norm`, each shortened where it is."""
        return Sharded(Dense(self.own).shortened(norm).rows, self.place, len(self))

    def gram(self) -> torch.Tensor:
        """Return the products; each process computes those of some columns, which are summed."""
        total = torch.zeros((len(self), len(self)), dtype=torch.float64, device=self.device)
        for block in self._my_blocks():
            if block is not None:
                total += Dense(block).gram()
        return collectives.all_reduce(total)

    def columnwise(self, function: Columnwise) -> torch.Tensor:
        """Return the function's values; each process computes those of some columns."""
        width = block_columns(len(self))
        columns = torch.arange(self.shape[1], device=self.device)
        blocks = zip(self._my_blocks(), columns.split(width), strict=True)
        mine = [(function(block), place) for block, place in blocks if block is not None]
        # Who has no columns, because there are few, does not know of which type the values are: those of no columns.
        values = [value for value, _ in mine] or [function(self.own.new_zeros((len(self), 0)))]
        places = [place for _, place in mine] or [columns[:0]]
        return collectives.all_gather(torch.cat(values), torch.cat(places), self.shape[1])

    def _my_blocks(self) -> Iterator[torch.Tensor | None]:
        """All rows of one block of columns after the other, ``[B, p]``; None where another process has its turn."""
        for number, block in enumerate(self.own.split(block_columns(len(self)), dim=1)):
            turn = number % collectives.world_size()
            yield collectives.gather(block, self.place, len(self), turn)

    def take(self, index: torch.Tensor) -> Sharded:
        """Return the rows at these positions; each stays where it is."""
        position = torch.full((len(self),), -1, dtype=torch.int64, device=self.device)
        position[self.place] = torch.arange(len(self.place), device=self.device)
        found = position[index]
        place = (found >= 0).nonzero()[:, 0]
        return Sharded(self.own[found[place]], place, len(index))

    def where(self, kept: torch.Tensor) -> Sharded:
        """Return the matrix with zeros in other rows."""
        return Sharded(Dense(self.own).where(kept[self.place]).rows, self.place, len(self))

    def finite(self) -> torch.Tensor:
        """Return which rows are finite, each looked at where it is."""
        return self._each(Dense(self.own).finite())

    def gathered(self) -> torch.Tensor:
        """Return all rows, in every process."""
        return collectives.all_gather(self.own, self.place, len(self))

    def joined(self, others: Sequence[Sharded]) -> Sharded:
        """Return these rows and then those of the others."""
        parts = (self, *others)
        before = [sum(map(len, parts[:i])) for i in range(len(parts) + 1)]
        place = torch.cat([part.place + low for part, low in zip(parts, before[:-1], strict=True)])
        return Sharded(torch.cat([part.own for part in parts]), place, before[-1])

    def _each(self, values: torch.Tensor) -> torch.Tensor:
        """One value for each row, ``[B]``, from those of the own ones, ``[b]``."""
        return collectives.all_gather(values, self.place, len(self))
