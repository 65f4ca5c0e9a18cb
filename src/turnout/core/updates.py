"""Define the matrix of the updates of a step, ``[B, P]``, with the operations of server rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from turnout.core.checks import ConfigurationError

Columnwise = Callable[[torch.Tensor], torch.Tensor]
"""A function from a block of columns of all rows, ``[B, p]``, to one number for each of these columns, ``[p]``."""

_COLUMNS = 1 << 12  # columns converted to float64 at a time, so that a converted block stays in the cache
_TINY = 2.0**-600  # times this factor, all float64 numbers can be squared and summed without overflow
_LEAST_FACTOR = 2.0**-64
_BLOCK = 1 << 17  # numbers in a block at least: with few rows, a block has more columns
_BLOCK_ON_GPU = 1 << 25  # 256 MB in float64, because starting an operation takes as long for a small block


def _gathered(value: Any) -> Any:
    """Replace updates by tensors, also inside lists and tuples."""
    if isinstance(value, list | tuple):
        return type(value)(map(_gathered, value))
    return value.gathered() if isinstance(value, Updates) else value


def _on_all_rows(operator: str) -> Callable[..., Any]:
    """Return an operator of updates that applies an operator of tensors."""
    return lambda self, *others: getattr(self.gathered(), operator)(*_gathered(others))


class Updates(ABC):
    """A matrix ``[B, P]`` with the operations that a server rule needs, wherever its rows are.

    Rows are in one tensor (`Dense`), on several processes, or already summed (see `turnout.distributed`). The operations
    below work for all of these, need no second matrix of this size, and compute in float64.

    All other operations of tensors work as well, on all rows gathered in one tensor: ``delta.median(dim=0)``,
    ``torch.quantile(delta, 0.5, dim=0)``, ``delta - mean``. Each of several processes then holds the whole matrix.

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
    """The factors by which rows were multiplied before they were summed, ``[B]``, if these are their weights except for
    staleness."""

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """The number of rows of each group that was summed separately; one group of all rows by default."""
        return (len(self),)

    @staticmethod
    def of(rows: torch.Tensor | Updates) -> Updates:
        """Return a matrix as `Updates`."""
        return rows if isinstance(rows, Updates) else Dense(rows)

    @abstractmethod
    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return ``sum_b w_b rows_b``, ``[P]``, for weights ``[B]``.

        Args:
            weights: the weight of each row.
            dtype: the type of the result. The sum is computed in float64 and rounded once, in blocks, so that a narrower
                result does not need the memory of the whole float64 sum.
        """

    def mean(self) -> torch.Tensor:
        """Return the mean of the rows, float64 ``[P]``."""
        return self.weighted_sum(torch.ones(len(self), dtype=torch.float64, device=self.device)) / len(self)

    @abstractmethod
    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Return ``<rows_b, vector>`` for every b, float64 ``[B]``."""

    @abstractmethod
    def norms(self) -> torch.Tensor:
        """Return the Euclidean norm of every row, float64 ``[B]``."""

    @abstractmethod
    def shortened(self, norm: float) -> Updates:
        """Return the matrix with rows clipped to a Euclidean norm."""

    @abstractmethod
    def gram(self) -> torch.Tensor:
        """Return all inner products ``<rows_a, rows_b>``, float64 ``[B, B]``.

        Squared distances are ``g_aa + g_bb - 2 g_ab``.
        """

    @abstractmethod
    def columnwise(self, function: Columnwise) -> torch.Tensor:
        """Apply a function to blocks of columns, and return its concatenated values, ``[P]``.

        Args:
            function: function that takes a block of columns of all rows, ``[B, p]`` in the order of the reports, and
                returns ``[p]``. Its value for a column must not depend on the other columns.
        """

    @abstractmethod
    def take(self, index: torch.Tensor) -> Updates:
        """Return the rows at these positions, int64 ``[b]``."""

    @abstractmethod
    def where(self, mask: torch.Tensor) -> Updates:
        """Return the matrix with zeros in the rows where the mask, bool ``[B]``, is False."""

    @abstractmethod
    def finite(self) -> torch.Tensor:
        """Return which rows hold no NaN or infinity, bool ``[B]``."""

    @abstractmethod
    def gathered(self) -> torch.Tensor:
        """Return all rows in one tensor ``[B, P]``, on every process."""

    def total(self) -> torch.Tensor | None:
        """Return a number, float64 ``[]``, that is finite only if all numbers are; None if that needs an exchange."""
        return None

    def joined(self, others: Sequence[Any]) -> Updates:
        """Return these rows followed by those of others of the same kind."""
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
        """Call a function of torch on all rows in one tensor."""
        return function(*_gathered(args), **{name: _gathered(value) for name, value in (kwargs or {}).items()})


class Dense(Updates):
    """A matrix in one tensor.

    Args:
        rows: ``[B, P]``; or of any shape ``[B, ...]`` for `where` and `finite`.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows
        self.shape, self.dtype, self.device = rows.shape, rows.dtype, rows.device

    def weighted_sum(self, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return the sum, computed a block of columns at a time."""
        weights, columns = weights.double(), block_columns(len(self), self.device)
        if self.shape[1] <= columns:
            return (weights @ self.rows.double()).to(dtype)
        return torch.cat([(weights @ block.double()).to(dtype) for block in self.rows.split(columns, dim=1)])

    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the products, computed a block of columns at a time."""
        total = torch.zeros(len(self), dtype=torch.float64, device=self.device)
        columns = block_columns(len(self), self.device)
        for block, part in zip(self.rows.split(columns, dim=1), vector.split(columns), strict=True):
            total += block.double() @ part.double()
        return total

    def norms(self) -> torch.Tensor:
        """Return the norms."""
        return lengths(self.rows)

    def shortened(self, norm: float) -> Dense:
        """Return the matrix with clipped rows."""
        return Dense(clipped(self.rows, norm))  # checking first if any is longer would synchronize with the device

    def gram(self) -> torch.Tensor:
        """Return the products, computed a block of columns at a time."""
        total = torch.zeros((len(self), len(self)), dtype=torch.float64, device=self.device)
        for block in self.rows.split(block_columns(len(self), self.device), dim=1):
            wide = block.double()
            total += wide @ wide.T
        return total

    def columnwise(self, function: Columnwise) -> torch.Tensor:
        """Return the function's values."""
        # Contiguous, as on several processes: the rounding of sums may depend on the order in memory.
        blocks = self.rows.split(block_columns(len(self), self.device), dim=1)
        return torch.cat([function(block.contiguous()) for block in blocks])

    def take(self, index: torch.Tensor) -> Dense:
        """Return the rows at these positions."""
        return Dense(self.rows[index])

    def where(self, mask: torch.Tensor) -> Dense:
        """Return the matrix with zeros in the other rows."""
        return Dense(self.rows.where(mask.view(-1, *(1,) * (self.rows.dim() - 1)), 0))

    def finite(self) -> torch.Tensor:
        """Return which rows are finite."""
        # A sum is finite only if every term is, and it needs no second matrix. Sums that overflow float32 are repeated in
        # float64; updates that overflow that are unusable as well.
        rows = self.rows.reshape(len(self), self.shape[1:].numel())
        good = torch.isfinite(rows.sum(dim=1))
        return good if good.all() else torch.isfinite(rows.sum(dim=1, dtype=torch.float64))

    def gathered(self) -> torch.Tensor:
        """Return the tensor itself."""
        return self.rows

    def total(self) -> torch.Tensor:
        """Return the sum of all numbers, which may overflow even if all are finite."""
        return self.rows.sum().double()


def lengths(rows: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean norm of every row ``[B, P]``, float64 ``[B]``, also if squares overflow float64."""
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    if rows.dtype != torch.float64:  # squares of other types do not overflow
        return norms
    # Without a branch on the values, which would synchronize with the device.
    return torch.where(norms.isinf(), torch.linalg.vector_norm(rows * _TINY, dim=1) / _TINY, norms)


def clipped(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """Clip rows ``[B, P]`` to a Euclidean norm."""
    length = lengths(rows)[:, None]
    factor = torch.where(length > norm, norm / length, 1.0)
    # A small factor is applied in two steps, because it would be subnormal in float32.
    first = torch.where(factor < _LEAST_FACTOR, _LEAST_FACTOR, 1.0)
    return rows * first.to(rows.dtype) * (factor / first).to(rows.dtype)


def join(parts: Sequence[torch.Tensor | Updates]) -> torch.Tensor | Updates:
    """Concatenate matrices, or vectors ``[B]``, of one kind."""
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    return torch.cat(tensors) if len(tensors) == len(parts) else Updates.of(parts[0]).joined(parts[1:])


def block_columns(num_rows: int, device: torch.device) -> int:
    """Return the number of columns in a block, a function of the number of rows and the kind of device alone."""
    block = _BLOCK if device.type == "cpu" else _BLOCK_ON_GPU
    return max(_COLUMNS, block // max(1, num_rows))
