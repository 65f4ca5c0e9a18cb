"""Update matrices of which sums alone are left, because their rows were summed as they came in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NoReturn, Self

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.updates import Dense, Updates, block_columns

# A sum of floating-point numbers depends on how its terms are grouped. Rows are therefore added in groups of so many, counted
# from the first row of the sum, whether they come one by one off a network or in chunks of any size: a chunk that ends within
# a group waits for the rest of it. So neither lanes nor the cut of a cohort change a bit.
_TOGETHER = 16

_CHUNK = 1 << 22  # columns of rows that are not joined of which the float64 sums are in memory at a time


def _refuse(what: str) -> NoReturn:
    """Refuse what needs updates one by one."""
    raise ConfigurationError(
        f"a server rule reads updates ({what}), which were summed as they came in and are not held any more, because the "
        "aggregation says only_sums = True: leave that out if it is the aggregation that reads them; if it is a weighting, "
        "write its apply() in place of factors()"
    )


def _refusing(what: str) -> Callable[..., NoReturn]:
    """Return a method that refuses what needs updates one by one."""

    def method(*_: object) -> NoReturn:
        _refuse(what)

    return method


class OnlySums(Updates):
    """Rows of which a weighted sum can be had, and nothing else.

    Attributes:
        weights: those that are known, up to one factor, float64 ``[B]``.
    """

    weights: torch.Tensor

    def _ratio(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the factor, float64 ``[1]``, by which these weights differ from those that are known.

        Raises:
            RuntimeError: where it is not one factor.
        """
        largest = self.weights.abs().argmax(dim=0, keepdim=True)  # a number as an index would be read by the host
        times = (weights[largest] / self.weights[largest]).where(self.weights[largest] != 0, 0.0)
        difference = (weights - times * self.weights).abs().max()
        unlike = (
            difference > 1e-6 * weights.abs().max()
        ) & times.isfinite()  # an overflow is what a server step is dropped for
        if self.device.type != "cpu":  # where nobody is to wait, such a step is dropped as one that overflows
            return times.where(~unlike, torch.nan)
        if unlike:
            raise RuntimeError("weights turned out not to be proportional to the factors that were announced for them")
        return times

    @abstractmethod
    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum for weights that are those which were known before, up to one factor."""

    inner = _refusing("their inner products")
    norms = _refusing("their norms")
    shortened = _refusing("their norms")
    gram = _refusing("their inner products")
    columnwise = _refusing("their columns")
    finite = _refusing("which of them are finite")
    gathered = _refusing("one or all of them")


class _Settled(OnlySums):
    """Sums that are made: rows can be put in another order, and neither doubled nor taken out again."""

    def _weights_at(self, index: torch.Tensor) -> torch.Tensor:
        """Return the weights of all rows that count, once each, in another order."""
        weights = self.weights[index]
        if len(index.unique()) < len(index) or weights.count_nonzero() < self.weights.count_nonzero():
            raise RuntimeError("rows that were summed can be neither doubled nor taken out again")
        return weights

    def where(self, kept: torch.Tensor) -> Self:
        """Return the same sums, where the other rows are in them with weight 0."""
        if self.weights.where(~kept, 0.0).any():
            _refuse("some of them")
        return self


class Summed(_Settled):
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
        return Summed(self.sum, self._weights_at(index), self.dtype)

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum, times what these weights are of those that were known."""
        if not len(weights):
            return torch.zeros_like(self.sum, dtype=dtype)
        return (self._ratio(weights) * self.sum).to(dtype)

    def joined(self, others: Sequence[Summed]) -> SumsOfGroups:
        """Return the sums of several groups."""
        parts = (self, *others)
        group = torch.repeat_interleave(torch.tensor([len(part) for part in parts]))
        return SumsOfGroups(parts, group.to(self.device), torch.cat([part.weights for part in parts]))


class SumsOfGroups(_Settled):
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
        return SumsOfGroups(self.parts, self.group[index], self._weights_at(index))

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum of the groups' sums, each times what these weights are of its own."""
        total = torch.zeros_like(self.parts[0].sum)
        for number, part in enumerate(self.parts):
            rows = self.group == number
            total += Summed(part.sum, self.weights[rows], self.dtype).weighted_sum(weights[rows])
        return total.to(dtype)


class LazySum(OnlySums):
    """Rows that are all here, with factors that their weights will be proportional to: summed when the sum is asked for.

    Args:
        rows: ``[B, P]``, or parts of it one below the other. Parts are not joined: large ones may be files that are mapped
            into memory.
        factors: u, float64 ``[B]``.
        dtype: of the rows, where they are ``u_b rows_b`` already, in a wider type; None where they are as they came.
    """

    def __init__(
        self, rows: torch.Tensor | Sequence[torch.Tensor], factors: torch.Tensor, dtype: torch.dtype | None = None
    ) -> None:
        self.parts = (rows,) if isinstance(rows, torch.Tensor) else tuple(rows)
        self.weights, self._multiplied, first = factors, dtype, self.parts[0]
        self.shape = torch.Size((len(factors), *first.shape[1:]))
        self.dtype, self.device = dtype or first.dtype, first.device

    def take(self, index: torch.Tensor) -> LazySum:
        """Return the rows at these positions."""
        if len(self.parts) == 1:
            rows = [self.parts[0][index]]
        else:
            rows = [row for i in index.tolist() for row in _cut(self.parts, i, i + 1)] or [self.parts[0][:0]]
        return LazySum(rows, self.weights[index], self._multiplied)

    def where(self, kept: torch.Tensor) -> LazySum:
        """Return the rows with zeros, and weight 0, in place of the others."""
        rows = [Dense(part).where(some).rows for part, some in zip(self.parts, self._split(kept), strict=True)]
        return LazySum(rows, self.weights.where(kept, 0.0), self._multiplied)

    def joined(self, others: Sequence[LazySum]) -> LazySum:
        """Return these rows, and below them those of others, where they are."""
        every = (self, *others)
        factors = torch.cat([one.weights for one in every])
        return LazySum([part for one in every for part in one.parts], factors, self._multiplied)

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the same bits as of rows that were summed as they came in."""
        size = self.shape[1]
        if not len(weights):
            return torch.zeros(size, dtype=dtype, device=self.device)
        ratio, times = self._ratio(weights), self.weights if self._multiplied is None else torch.ones_like(self.weights)
        if size <= _CHUNK:
            return (ratio * _in_groups(times, self.parts)).to(dtype)
        found = torch.empty(size, dtype=dtype, device=self.device)
        for start in range(0, size, _CHUNK):
            stop = min(start + _CHUNK, size)
            found[start:stop] = ratio * _in_groups(times, self.parts, columns=(start, stop))
        return found

    def finite(self) -> torch.Tensor:
        """Return which rows are finite."""
        return torch.cat([Dense(part).finite() for part in self.parts])

    def total(self) -> torch.Tensor:
        """Return the sum of all numbers."""
        return torch.stack([Dense(part).total() for part in self.parts]).sum()

    def _split(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return one value of each row, ``[B]``, as those of each part."""
        return values.split([len(part) for part in self.parts])


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


def _in_groups(
    weights: torch.Tensor,
    parts: Sequence[torch.Tensor],
    total: torch.Tensor | None = None,
    columns: tuple[int, int] | None = None,
) -> torch.Tensor:
    """``sum_b w_b rows_b``, group after group, added to what there is already (which is changed).

    Args:
        weights: ``[b]``.
        parts: rows ``[., P]`` one below the other, of which the first b are summed. They are not joined: large ones may be
            files that are mapped into memory.
        total: what there is already.
        columns: the first one of the sum and the one behind the last; None is all of them.
    """
    for start in range(0, max(1, len(weights)), _TOGETHER):
        group = weights[start : start + _TOGETHER]
        rows = _cut(parts, start, start + len(group)) or [parts[0][:0]]
        part = _sum(group, rows) if columns is None else _sum_of_columns(group, rows, *columns)
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


def _sum_of_columns(weights: torch.Tensor, parts: Sequence[torch.Tensor], start: int, stop: int) -> torch.Tensor:
    """Return what `_sum` returns from the column `start` to `stop`, bit for bit.

    The bits of a product may depend on how wide a block of columns is, so the blocks are those of `_sum`, and what they have
    beside these columns is computed in vain.
    """
    width = block_columns(len(weights))
    low, high = start - start % width, -(-stop // width) * width
    return _sum(weights, [part[:, low:high] for part in parts])[start - low : stop - low]


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
