"""Update matrices whose rows were summed on arrival, so that only sums are available."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NoReturn, Self

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.updates import Dense, Updates
from turnout.distributed.running_sum import cut, in_groups

_CHUNK = 1 << 22  # maximum number of columns of a float64 sum in memory


def _refuse(what: str) -> NoReturn:
    """Raise the error for an operation that needs single updates."""
    raise ConfigurationError(
        f"a server rule reads updates ({what}), which were summed on arrival and are no longer in memory, because the "
        "aggregation sets only_sums = True: remove that if the aggregation reads them; if a weighting does, write its "
        "apply() in place of factors()"
    )


def _refusing(what: str) -> Callable[..., NoReturn]:
    """Return a method that raises the error for an operation that needs single updates."""

    def method(*_: object) -> NoReturn:
        _refuse(what)

    return method


class OnlySums(Updates):
    """Rows of which only a weighted sum is available.

    Attributes:
        weights: the weights, known up to a common factor, float64 ``[B]``.
    """

    weights: torch.Tensor

    def _ratio(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the common factor, float64 ``[1]``, between these weights and those that are known.

        Raises:
            RuntimeError: if there is no common factor.
        """
        largest = self.weights.abs().argmax(dim=0, keepdim=True)  # a tensor, because an integer would synchronize
        times = (weights[largest] / self.weights[largest]).where(self.weights[largest] != 0, 0.0)
        difference = (weights - times * self.weights).abs().max()
        unlike = (difference > 1e-6 * weights.abs().max()) & times.isfinite()  # steps that overflow are dropped later
        if self.device.type != "cpu":  # without synchronization: such a step is dropped as one that overflows
            return times.where(~unlike, torch.nan)
        if unlike:
            raise RuntimeError("weights turned out not to be proportional to the factors that were announced for them")
        return times

    @abstractmethod
    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum for weights that equal the known ones up to a common factor."""

    inner = _refusing("their inner products")
    norms = _refusing("their norms")
    shortened = _refusing("their norms")
    gram = _refusing("their inner products")
    columnwise = _refusing("their columns")
    finite = _refusing("which of them are finite")
    gathered = _refusing("one or all of them")


class _Settled(OnlySums):
    """Computed sums: rows can be permuted, but neither repeated nor removed."""

    def _weights_at(self, index: torch.Tensor) -> torch.Tensor:
        """Return the permuted weights; rows with weight 0 may be left out."""
        weights = self.weights[index]
        if len(index.unique()) < len(index) or weights.count_nonzero() < self.weights.count_nonzero():
            raise RuntimeError("rows that were summed can be neither doubled nor taken out again")
        return weights

    def where(self, mask: torch.Tensor) -> Self:
        """Return the same sums; all other rows must have weight 0."""
        if self.weights.where(~mask, 0.0).any():
            _refuse("some of them")
        return self


class Summed(_Settled):
    """Rows of which only a sum is available, with weights that are known up to a common factor.

    Args:
        total: ``sum_b u_b rows_b``, float64 ``[P]``.
        weights: u, float64 ``[B]``; 0 for rows that are not in the sum.
        dtype: the type of the rows.
    """

    def __init__(self, total: torch.Tensor, weights: torch.Tensor, dtype: torch.dtype) -> None:
        self.sum, self.weights = total, weights
        self.shape, self.dtype, self.device = torch.Size((len(weights), *total.shape)), dtype, total.device

    def take(self, index: torch.Tensor) -> Summed:
        """Return the rows in another order; rows with weight 0 may be left out."""
        return Summed(self.sum, self._weights_at(index), self.dtype)

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum, times the common factor of these weights."""
        if not len(weights):
            return torch.zeros_like(self.sum, dtype=dtype)
        return (self._ratio(weights) * self.sum).to(dtype)

    def joined(self, others: Sequence[Summed]) -> SumsOfGroups:
        """Return the sums of several groups as one matrix."""
        parts = (self, *others)
        group = torch.repeat_interleave(torch.tensor([len(part) for part in parts]))
        return SumsOfGroups(parts, group.to(self.device), torch.cat([part.weights for part in parts]))


class SumsOfGroups(_Settled):
    """Rows of which sums over groups are available, with weights that are known up to a factor for each group.

    Args:
        parts: the sum of each group.
        group: the group of each row, int64 ``[B]``; rows of a group are in its order.
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
        """The number of rows of each group."""
        return tuple(len(part) for part in self.parts)

    def take(self, index: torch.Tensor) -> SumsOfGroups:
        """Return the rows in another order; rows with weight 0 may be left out."""
        return SumsOfGroups(self.parts, self.group[index], self._weights_at(index))

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum of the groups' sums, each times the factor of its weights."""
        total = torch.zeros_like(self.parts[0].sum)
        for number, part in enumerate(self.parts):
            rows = self.group == number
            total += Summed(part.sum, self.weights[rows], self.dtype).weighted_sum(weights[rows])
        return total.to(dtype)


class LazySum(OnlySums):
    """Rows with factors that are proportional to their weights, summed on access.

    Args:
        rows: ``[B, P]``, or consecutive parts of it, which are not concatenated: they may be memory-mapped files.
        factors: u, float64 ``[B]``.
        dtype: the type of the rows, if they are given as ``u_b rows_b`` in a wider type; None if they are not multiplied.
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
            rows = [row for i in index.tolist() for row in cut(self.parts, i, i + 1)] or [self.parts[0][:0]]
        return LazySum(rows, self.weights[index], self._multiplied)

    def where(self, mask: torch.Tensor) -> LazySum:
        """Return the matrix with zeros and weight 0 in the other rows."""
        masks = mask.split([len(part) for part in self.parts])
        rows = [Dense(part).where(rows).rows for part, rows in zip(self.parts, masks, strict=True)]
        return LazySum(rows, self.weights.where(mask, 0.0), self._multiplied)

    def joined(self, others: Sequence[LazySum]) -> LazySum:
        """Return these rows followed by those of others, without copying them."""
        sums = (self, *others)
        factors = torch.cat([rows.weights for rows in sums])
        return LazySum([part for rows in sums for part in rows.parts], factors, self._multiplied)

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum, with the same bits as if the rows were summed on arrival."""
        size = self.shape[1]
        if not len(weights):
            return torch.zeros(size, dtype=dtype, device=self.device)
        ratio, times = self._ratio(weights), self.weights if self._multiplied is None else torch.ones_like(self.weights)
        if size <= _CHUNK:
            return (ratio * in_groups(times, self.parts)).to(dtype)
        total = torch.empty(size, dtype=dtype, device=self.device)
        for start in range(0, size, _CHUNK):
            stop = min(start + _CHUNK, size)
            total[start:stop] = ratio * in_groups(times, self.parts, columns=(start, stop))
        return total

    def finite(self) -> torch.Tensor:
        """Return which rows are finite."""
        return torch.cat([Dense(part).finite() for part in self.parts])

    def total(self) -> torch.Tensor:
        """Return the sum of all numbers."""
        return torch.stack([Dense(part).total() for part in self.parts]).sum()
