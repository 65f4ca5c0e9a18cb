"""The matrix of a step's updates ``[B, P]``, one row for each report, as server rules see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from turnout.core.checks import ConfigurationError

Columnwise = Callable[[torch.Tensor], torch.Tensor]
"""From some columns of all rows, ``[B, p]``, to one number for each of these columns, ``[p]``."""

_COLUMNS = 1 << 12  # columns converted to float64 at a time, so that a converted block stays in the cache
_TINY = 2.0**-600  # of which the multiples of all float64 numbers can be squared and summed
_LEAST_FACTOR = 2.0**-64
_BLOCK = 1 << 17  # numbers that it may always hold: of few rows more columns


def _gathered(value: Any) -> Any:
    """Put tensors in place of updates, also inside of lists and tuples."""
    if isinstance(value, list | tuple):
        return type(value)(map(_gathered, value))
    return value.gathered() if isinstance(value, Updates) else value


def _on_all_rows(operator: str) -> Callable[..., Any]:
    """Make an operator of updates of one of tensors."""
    return lambda self, *others: getattr(self.gathered(), operator)(*_gathered(others))


class Updates(ABC):
    """A matrix ``[B, P]`` with the operations that a server rule needs, wherever its rows are.

    Rows are in one tensor (`Dense`), in several processes, or summed already (see `turnout.distributed`). The
    operations are the same for all of these, need no second matrix of that size, and compute in float64.

    Whatever else a tensor can do works as well, on all rows gathered in one tensor: ``delta.median(dim=0)``,
    ``torch.quantile(delta, 0.5, dim=0)``, ``delta - mean``. Of several processes each then holds the whole matrix.

    Example:
        >>> updates = Updates.of(torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 1.0]]))
        >>> updates.norms()
        tensor([ 5., 10.,  1.], dtype=torch.float64)
        >>> updates.weighted_sum(torch.tensor([1.0, 0.5, 0.0]))
        tensor([6., 8.], dtype=torch.float64)
        >>> updates.columnwise(lambda columns: columns.median(dim=0).values)
        tensor([3., 4.])
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    fixed: torch.Tensor | None = None
    """What each row was multiplied by before it was summed, ``[B]``, where that is its weight but for its staleness."""

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many rows each group has whose rows were summed apart from those of others: all, where there is one."""
        return (len(self),)

    @staticmethod
    def of(rows: torch.Tensor | Updates) -> Updates:
        """Return a matrix as `Updates`, which it may be already."""
        return rows if isinstance(rows, Updates) else Dense(rows)

    @abstractmethod
    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return ``sum_b w_b rows_b``, ``[P]``, for weights ``[B]``.

        Args:
            weights: one for each row.
            dtype: of the result. The sum is float64 and is rounded once; of large rows, a narrower type never takes the
                memory of the whole float64 sum.
        """

    def mean(self) -> torch.Tensor:
        """Return the mean of the rows, float64 ``[P]``."""
        return self.weighted_sum(torch.ones(len(self), dtype=torch.float64, device=self.device)) / len(self)

    @abstractmethod
    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Return ``<rows_b, vector>`` for every b, float64 ``[B]``."""

    @abstractmethod
    def norms(self) -> torch.Tensor:
        """Return the Euclidean length of every row, float64 ``[B]``."""

    @abstractmethod
    def shortened(self, norm: float) -> Updates:
        """Return the matrix with rows longer than `norm` brought down to it; the same where there is none."""

    @abstractmethod
    def gram(self) -> torch.Tensor:
        """Return all inner products ``<rows_a, rows_b>``, float64 ``[B, B]``.

        Squared distances are ``g_aa + g_bb - 2 g_ab``.
        """

    @abstractmethod
    def columnwise(self, function: Columnwise) -> torch.Tensor:
        """Apply a function to a block of columns after the other, and return its values end to end, ``[P]``.

        Args:
            function: takes some columns of all rows, ``[B, p]`` in the order of the reports, and gives ``[p]``. What it gives
                of a column must not depend on the other columns.
        """

    @abstractmethod
    def take(self, index: torch.Tensor) -> Updates:
        """Return the rows at these positions, int64 ``[b]``."""

    @abstractmethod
    def where(self, kept: torch.Tensor) -> Updates:
        """Return the matrix with zeros in the rows where `kept`, bool ``[B]``, is False."""

    @abstractmethod
    def finite(self) -> torch.Tensor:
        """Return which rows hold no NaN or infinity, bool ``[B]``."""

    @abstractmethod
    def gathered(self) -> torch.Tensor:
        """Return all rows in one tensor ``[B, P]``; of several processes each gets them all."""

    def total(self) -> torch.Tensor | None:
        """Return a number, float64 ``[]``, that is finite only if all are; None where that takes an exchange."""
        return None

    def joined(self, others: Sequence[Any]) -> Updates:
        """Return these rows, and below them those of others that are of the same kind."""
        return Dense(torch.cat([self.gathered(), *(other.gathered() for other in others)]))

    def __len__(self) -> int:
        return self.shape[0]

    def dim(self) -> int:
        """Return the number of axes, 2."""
        return len(self.shape)

    def element_size(self) -> int:
        """Return the bytes of a number."""
        return self.dtype.itemsize

    def __getitem__(self, index: Any) -> Any:
        rows = isinstance(index, torch.Tensor) and index.dtype == torch.int64 and index.dim() == 1
        return self.take(index) if rows else self.gathered()[index]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.gathered())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"updates have no {name!r}, and neither have tensors")
        if name.endswith("_"):
            raise ConfigurationError(
                f"updates cannot be changed in place, as {name}() would: write delta = delta.{name[:-1]}(...)"
            )
        return getattr(self.gathered(), name)

    __neg__, __abs__ = _on_all_rows("__neg__"), _on_all_rows("__abs__")
    __add__ = __radd__ = _on_all_rows("__add__")
    __mul__ = __rmul__ = _on_all_rows("__mul__")
    __sub__, __rsub__ = _on_all_rows("__sub__"), _on_all_rows("__rsub__")
    __truediv__, __rtruediv__ = _on_all_rows("__truediv__"), _on_all_rows("__rtruediv__")
    __matmul__, __rmatmul__ = _on_all_rows("__matmul__"), _on_all_rows("__rmatmul__")
    __pow__ = _on_all_rows("__pow__")
    __lt__, __le__ = _on_all_rows("__lt__"), _on_all_rows("__le__")
    __gt__, __ge__ = _on_all_rows("__gt__"), _on_all_rows("__ge__")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch with all rows in one tensor."""
        del types
        return function(*_gathered(args), **{name: _gathered(value) for name, value in (kwargs or {}).items()})


class Dense(Updates):
    """Rows that are all in one tensor.

    Args:
        rows: ``[B, P]``; or of any shape ``[B, ...]`` for `where` and `finite`.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows
        self.shape, self.dtype, self.device = rows.shape, rows.dtype, rows.device

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum, computed a block of columns at a time."""
        weights, columns = weights.double(), block_columns(len(self))
        if self.shape[1] <= columns:
            return (weights @ self.rows.double()).to(dtype)
        return torch.cat([(weights @ block.double()).to(dtype) for block in self.rows.split(columns, dim=1)])

    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the products, computed a block of columns at a time."""
        total = torch.zeros(len(self), dtype=torch.float64, device=self.device)
        columns = block_columns(len(self))
        for block, part in zip(self.rows.split(columns, dim=1), vector.split(columns), strict=True):
            total += block.double() @ part.double()
        return total

    def norms(self) -> torch.Tensor:
        """Return the lengths."""
        return lengths(self.rows)

    def shortened(self, norm: float) -> Dense:
        """Return the matrix with no row longer than `norm`."""
        return Dense(clipped(self.rows, norm))  # asking whether any is longer would wait for a device

    def gram(self) -> torch.Tensor:
        """Return the products, computed a block of columns at a time."""
        total = torch.zeros((len(self), len(self)), dtype=torch.float64, device=self.device)
        for block in self.rows.split(block_columns(len(self)), dim=1):
            wide = block.double()
            total += wide @ wide.T
        return total

    def columnwise(self, function: Columnwise) -> torch.Tensor:
        """Return the function's values."""
        # As a tensor of its own, as it is where several processes hold the rows: sums may be rounded by the order in memory.
        blocks = self.rows.split(block_columns(len(self)), dim=1)
        return torch.cat([function(block.contiguous()) for block in blocks])

    def take(self, index: torch.Tensor) -> Dense:
        """Return the rows at these positions."""
        return Dense(self.rows[index])

    def where(self, kept: torch.Tensor) -> Dense:
        """Return the matrix with zeros in other rows."""
        return Dense(self.rows.where(kept.view(-1, *(1,) * (self.rows.dim() - 1)), 0))

    def finite(self) -> torch.Tensor:
        """Return which rows are finite."""
        # A sum is finite only if every term is, and it needs no second matrix. One that overflows float32 is looked at
        # again; an overflow beyond 1e300 is an update that no model survives either.
        rows = self.rows.reshape(len(self), self.shape[1:].numel())
        good = torch.isfinite(rows.sum(dim=1))
        return good if good.all() else torch.isfinite(rows.sum(dim=1, dtype=torch.float64))

    def gathered(self) -> torch.Tensor:
        """Return the tensor itself."""
        return self.rows

    def total(self) -> torch.Tensor:
        """Return the sum of all numbers, which may be infinite where all are finite."""
        return self.rows.sum().double()


def lengths(rows: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean length of every row ``[B, P]``, float64 ``[B]``, also where squares overflow float64."""
    found = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    if rows.dtype != torch.float64:  # squares of other types do not overflow
        return found
    # Asking whether any is infinite would wait for a device.
    return torch.where(found.isinf(), torch.linalg.vector_norm(rows * _TINY, dim=1) / _TINY, found)


def clipped(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """Return rows ``[B, P]`` of which those longer than `norm` are shortened to it."""
    length = lengths(rows)[:, None]
    factor = torch.where(length > norm, norm / length, 1.0)
    # Two factors, where one would be too small for float32 to hold it with all of its digits.
    first = torch.where(factor < _LEAST_FACTOR, _LEAST_FACTOR, 1.0)
    return rows * first.to(rows.dtype) * (factor / first).to(rows.dtype)


def join(parts: Sequence[torch.Tensor | Updates]) -> torch.Tensor | Updates:
    """Return some rows and then others, of the kind that they are; of vectors ``[B]`` too."""
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    return torch.cat(tensors) if len(tensors) == len(parts) else Updates.of(parts[0]).joined(parts[1:])


def block_columns(num_rows: int) -> int:
    """Return how many columns to look at together: a function of the number of rows alone, wherever these are."""
    return max(_COLUMNS, _BLOCK // max(1, num_rows))
