"""Updates that no single tensor holds: rows in several processes, and rows that were summed as they came in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NoReturn

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.updates import Columnwise, Dense, Updates, block_columns
from turnout.distributed import collectives

_TOGETHER = 16  # rows of a running sum that are added at a time, however they come in, so that this changes no bit


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

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the sum of what each process sums of its own."""
        return collectives.all_reduce(Dense(self.own).weighted_sum(weights[self.place]))

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


class OnlySums(Updates):
    """Rows of which a weighted sum can be had, and nothing else.

    Attributes:
        weights: those that are known, up to one factor, float64 ``[B]``.
    """

    weights: torch.Tensor

    @abstractmethod
    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the sum for weights that are those which were known before, up to one factor."""

    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Refuse."""
        _refuse("their inner products", vector)

    def norms(self) -> torch.Tensor:
        """Refuse."""
        _refuse("their norms")

    def shortened(self, norm: float) -> Updates:
        """Refuse."""
        _refuse("their norms", norm)

    def gram(self) -> torch.Tensor:
        """Refuse."""
        _refuse("their inner products")

    def columnwise(self, function: Columnwise) -> torch.Tensor:
        """Refuse."""
        _refuse("their columns", function)

    def finite(self) -> torch.Tensor:
        """Refuse."""
        _refuse("which of them are finite")

    def gathered(self) -> torch.Tensor:
        """Refuse."""
        _refuse("one or all of them")


def _refuse(what: str, *of: object) -> NoReturn:
    """Refuse what needs updates one by one."""
    del of
    raise ConfigurationError(
        f"a server rule reads updates ({what}), which were summed as they came in and are not held any more, because the "
        "aggregation says only_sums = True: leave that out if it is the aggregation that reads them; if it is a weighting, "
        "write its apply() in place of factors()"
    )


class Summed(OnlySums):
    """Rows of which only a sum is left, with weights that are known up to one factor.

    Args:
        total: ``sum_b u_b rows_b``, float64 ``[P]``.
        weights: u, float64 ``[B]``; 0 for rows that are not in it.
        dtype: of the rows.
    """

    def __init__(self, total: torch.Tensor, weights: torch.Tensor, dtype: torch.dtype) -> None:
        self.sum, self.weights = total, weights
        self.shape, self.dtype, self.device = torch.Size((len(weights), *total.shape)), dtype, total.device

    def take(self, index: torch.Tensor) -> Summed:
        """Return all rows that count, once each, in another order."""
        kept = self.weights[index]
        if len(index.unique()) < len(index) or kept.count_nonzero() < self.weights.count_nonzero():
            raise RuntimeError("rows that were summed can be neither doubled nor taken out again")
        return Summed(self.sum, kept, self.dtype)

    def where(self, kept: torch.Tensor) -> Summed:
        """Return the same sum, where the other rows are in it with weight 0."""
        if self.weights.where(~kept, 0.0).any():
            _refuse("some of them", kept)
        return self

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the sum, times what these weights are of those that were known."""
        if not len(weights):
            return torch.zeros_like(self.sum)
        largest = self.weights.abs().argmax(dim=0, keepdim=True)  # a number as an index would be read by the host
        times = (weights[largest] / self.weights[largest]).where(self.weights[largest] != 0, 0.0)
        difference = (weights - times * self.weights).abs().max()
        unlike = (
            difference > 1e-6 * weights.abs().max()
        ) & times.isfinite()  # an overflow is what a server step is dropped for
        if self.device.type != "cpu":  # where nobody is to wait, such a step is dropped as one that overflows
            return times.where(~unlike, torch.nan) * self.sum
        if unlike:
            raise RuntimeError("weights turned out not to be proportional to the factors that were announced for them")
        return times * self.sum

    def joined(self, others: Sequence[Summed]) -> SumsOfGroups:
        """Return the sums of several groups."""
        parts = (self, *others)
        group = torch.repeat_interleave(torch.tensor([len(part) for part in parts]))
        return SumsOfGroups(parts, group.to(self.device), torch.cat([part.weights for part in parts]))


class SumsOfGroups(OnlySums):
    """Rows of which sums over groups are left, with weights that are final but for one factor of each group.

    Args:
        parts: the sum of each group.
        group: which one each row is in, int64 ``[B]``, the rows of a group in the order of its own.
        weights: u, float64 ``[B]``; 0 for rows that are in no sum.
    """

    def __init__(self, parts: Sequence[Summed], group: torch.Tensor, weights: torch.Tensor) -> None:
        self.parts, self.group, self.weights = parts, group, weights
        self.fixed = weights
        first = parts[0]
        self.shape, self.dtype = torch.Size((len(weights), *first.shape[1:])), first.dtype
        self.device = first.device

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many rows each group has."""
        return tuple(len(part) for part in self.parts)

    def take(self, index: torch.Tensor) -> SumsOfGroups:
        """Return all rows that count, once each, in another order."""
        kept = self.weights[index]
        if len(index.unique()) < len(index) or kept.count_nonzero() < self.weights.count_nonzero():
            raise RuntimeError("rows that were summed can be neither doubled nor taken out again")
        return SumsOfGroups(self.parts, self.group[index], kept)

    def where(self, kept: torch.Tensor) -> SumsOfGroups:
        """Return the same sums, where the other rows are in them with weight 0."""
        if self.weights.where(~kept, 0.0).any():
            _refuse("some of them", kept)
        return self

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the sum of the groups' sums, each times what these weights are of its own."""
        total = torch.zeros_like(self.parts[0].sum)
        for number, part in enumerate(self.parts):
            rows = self.group == number
            total += Summed(part.sum, self.weights[rows], self.dtype).weighted_sum(weights[rows])
        return total


class LazySum(OnlySums):
    """Rows that are all here, with factors that their weights will be proportional to: `Summed` when they are asked for.

    Args:
        rows: ``[B, P]``.
        factors: u, float64 ``[B]``.
        dtype: of the rows, where they are ``u_b rows_b`` already, in a wider type; None where they are as they came.
    """

    def __init__(self, rows: torch.Tensor, factors: torch.Tensor, dtype: torch.dtype | None = None) -> None:
        self.rows, self.weights, self._multiplied = rows, factors, dtype
        self.shape, self.dtype, self.device = rows.shape, dtype or rows.dtype, rows.device

    def take(self, index: torch.Tensor) -> LazySum:
        """Return the rows at these positions."""
        return LazySum(self.rows[index], self.weights[index], self._multiplied)

    def where(self, kept: torch.Tensor) -> LazySum:
        """Return the rows with zeros, and weight 0, in place of the others."""
        return LazySum(Dense(self.rows).where(kept).rows, self.weights.where(kept, 0.0), self._multiplied)

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the same bits as of rows that were summed as they came in."""
        times = self.weights if self._multiplied is None else torch.ones_like(self.weights)
        return Summed(_in_groups(times, [self.rows]), self.weights, self.dtype).weighted_sum(weights)

    def finite(self) -> torch.Tensor:
        """Return which rows are finite."""
        return Dense(self.rows).finite()

    def total(self) -> torch.Tensor:
        """Return the sum of all numbers."""
        return Dense(self.rows).total()


class RunningSum:
    """``sum_b w_b rows_b``, float64, of rows that come in parts; the same bits however they are cut into parts."""

    def __init__(self) -> None:
        self._total: torch.Tensor | None = None
        self._weights: list[torch.Tensor] = []  # of what waits for a full group
        self._rows: list[torch.Tensor] = []

    def add(self, weights: torch.Tensor, rows: torch.Tensor) -> None:
        """Add the next rows ``[b, P]`` with their weights ``[b]``."""
        # The first ones complete the group that waits, so that the others need not be copied behind it.
        first = -self._waiting % _TOGETHER
        for part in (slice(0, first), slice(first, None)):
            self._weights.append(weights[part])
            self._rows.append(rows[part])
            if self._waiting >= _TOGETHER:
                self._take(self._waiting - self._waiting % _TOGETHER)

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._weights))

    def _take(self, number: int) -> None:
        """Sum the first of those that wait."""
        weights, waiting = torch.cat(self._weights), self._waiting
        self._total = _in_groups(weights[:number], self._rows, self._total)
        # Copies, because a slice would keep all of the part that it is of.
        rest = [part.clone() for part in _cut(self._rows, number, waiting)]
        self._weights, self._rows = [weights[number:].clone()], rest or [self._rows[0][:0].clone()]

    def total(self) -> torch.Tensor:
        """Return the sum ``[P]`` of all that came; nothing may come any more."""
        if self._waiting or self._total is None:
            self._take(self._waiting)
        assert self._total is not None
        return self._total


def _in_groups(weights: torch.Tensor, parts: Sequence[torch.Tensor], total: torch.Tensor | None = None) -> torch.Tensor:
    """``sum_b w_b rows_b``, group after group, added to what there is already (which is changed).

    Args:
        weights: ``[b]``.
        parts: rows ``[., P]`` one below the other, of which the first b are summed. They are not joined: large ones may be
            files that are mapped into memory.
        total: what there is already.
    """
    for start in range(0, max(1, len(weights)), _TOGETHER):
        some = weights[start : start + _TOGETHER]
        part = _sum(some, _cut(parts, start, start + len(some)) or [parts[0][:0]])
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


def _sum(weights: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the bits of `Dense.weighted_sum` of the rows of all parts, which are joined a block of columns at a time."""
    columns, size = block_columns(len(weights)), parts[0].shape[1]
    if len(parts) == 1 or size <= columns:
        return Dense(parts[0] if len(parts) == 1 else torch.cat(list(parts))).weighted_sum(weights)
    found = weights.new_empty(size, dtype=torch.float64)
    for start in range(0, size, columns):
        block = torch.cat([part[:, start : start + columns] for part in parts])
        found[start : start + columns] = weights.double() @ block.double()
    return found


def _cut(parts: Sequence[torch.Tensor], start: int, stop: int) -> list[torch.Tensor]:
    """Return the rows from `start` to `stop` of parts one below the other."""
    found, at = [], 0
    for part in parts:
        low, high = max(start - at, 0), min(stop - at, len(part))
        if low < high:
            found.append(part[low:high])
        at += len(part)
    return found
