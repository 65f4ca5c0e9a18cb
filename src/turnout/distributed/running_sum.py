"""Sum weighted rows group by group, with bits that do not depend on the parts in which the rows arrive."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.core.updates import Dense, block_columns

# The rounding of a sum depends on how its terms are grouped. Rows are therefore added in groups of this size, counted from
# the first row of the sum, whether they arrive one by one from a network or in chunks of any size: rows of an incomplete
# group wait for the others. The bits of a sum thus depend neither on the number of lanes nor on the chunks of a cohort.
_TOGETHER = 16
_TOGETHER_ON_GPU = 64  # fewer operations, because the host takes longer to start one than the GPU to compute it


def _together(device: torch.device) -> int:
    """Return the number of rows of a group, a function of the kind of device alone."""
    return _TOGETHER if device.type == "cpu" else _TOGETHER_ON_GPU


class RunningSum:
    """Compute ``sum_b w_b rows_b``, float64, of rows that arrive in parts, with bits that do not depend on the parts."""

    def __init__(self) -> None:
        self._total: torch.Tensor | None = None
        self._weights: list[torch.Tensor] = []  # of rows that wait for a full group
        self._rows: list[torch.Tensor] = []

    def add(self, weights: torch.Tensor, rows: torch.Tensor) -> None:
        """Add the next rows ``[b, P]`` with their weights ``[b]``."""
        # The first rows complete the waiting group, so that the others need not be copied to join it.
        together = _together(rows.device)
        first = -self._waiting % together
        for part in (slice(0, first), slice(first, None)):
            self._weights.append(weights[part])
            self._rows.append(rows[part])
            if self._waiting >= together:
                self._take(self._waiting - self._waiting % together)

    @property
    def _waiting(self) -> int:
        """The number of rows that wait for a full group."""
        return sum(map(len, self._weights))

    def _take(self, number: int) -> torch.Tensor:
        """Add the first waiting rows to the sum, and return it."""
        weights, waiting = torch.cat(self._weights), self._waiting
        self._total = total = in_groups(weights[:number], self._rows, self._total)
        # Copies, because slices would keep their whole parts in memory.
        rest = [part.clone() for part in cut(self._rows, number, waiting)]
        self._weights, self._rows = [weights[number:].clone()], rest or [self._rows[0][:0].clone()]
        return total

    def total(self) -> torch.Tensor:
        """Return the sum ``[P]`` of all rows; none may be added afterwards."""
        return self._take(self._waiting) if self._waiting or self._total is None else self._total


def in_groups(
    weights: torch.Tensor,
    parts: Sequence[torch.Tensor],
    total: torch.Tensor | None = None,
    columns: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Return ``sum_b w_b rows_b``, group by group, added to a total in place.

    Args:
        weights: ``[b]``.
        parts: consecutive rows ``[., P]``, of which the first b are summed. They are not concatenated: they may be
            memory-mapped files.
        total: the total; None is zero.
        columns: the range of columns; None is all columns.
    """
    together = _together(weights.device)
    for start in range(0, max(len(weights), 1), together):
        group = weights[start : start + together]
        rows = cut(parts, start, start + len(group)) or [parts[0][:0]]
        part = _sum(group, rows) if columns is None else _sum_of_columns(group, rows, *columns)
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


def _sum_of_columns(weights: torch.Tensor, parts: Sequence[torch.Tensor], start: int, stop: int) -> torch.Tensor:
    """Return the columns from `start` to `stop` of `_sum`, bit for bit.

    The bits of a product may depend on the width of a block of columns. The blocks are therefore those of `_sum`, and their
    other columns are discarded.
    """
    width = block_columns(len(weights), weights.device)
    low, high = start - start % width, -(-stop // width) * width
    return _sum(weights, [part[:, low:high] for part in parts])[start - low : stop - low]


def _sum(weights: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return `Dense.weighted_sum` of the rows of all parts, bit for bit, concatenating one block of columns at a time."""
    columns, size = block_columns(len(weights), weights.device), parts[0].shape[1]
    if len(parts) == 1 or size <= columns:
        return Dense(parts[0] if len(parts) == 1 else torch.cat(list(parts))).weighted_sum(weights)
    total = weights.new_empty(size, dtype=torch.float64)
    for start in range(0, size, columns):
        block = torch.cat([part[:, start : start + columns] for part in parts])
        total[start : start + columns] = weights.double() @ block.double()
    return total


def cut(parts: Sequence[torch.Tensor], start: int, stop: int) -> list[torch.Tensor]:
    """Return the rows from `start` to `stop` of consecutive parts."""
    rows, offset = [], 0
    for part in parts:
        low, high = max(start - offset, 0), min(stop - offset, len(part))
        if low < high:
            rows.append(part[low:high])
        offset += len(part)
    return rows
