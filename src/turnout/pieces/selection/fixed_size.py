"""Sizes of cohorts, and the base class of selections with a fixed number of clients in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from turnout.base import FixedCohort, Selection
from turnout.core.checks import count, is_finite, refuse


class AtMost(int):
    """A default size of a cohort, which becomes that of the federation where there are fewer clients."""


TEN = AtMost(10)
"""The default size of a cohort."""


def _check_size(name: str, size: Any) -> None:
    """Check that a value is the size of a cohort."""
    if size is None or (isinstance(size, float) and is_finite(size) and 0.0 < size <= 1.0):
        return
    if isinstance(size, float):
        needed = "a whole number >= 1, a share of the clients, 0 < share <= 1, or None for all clients"
        raise refuse(name, given=size, needed=needed)
    count(name, size, instead="Write a share such as 0.1 for a tenth of the clients, or None for all clients")


Size = Annotated[int | float | None, _check_size]
"""The size of a cohort: a number of clients, a share of all clients such as 0.1, or None for all of them."""


def size_of(size: Size, num_clients: int) -> int:
    """Return the number of clients of a cohort in a federation.

    >>> size_of(3, 20), size_of(0.1, 25), size_of(0.01, 20), size_of(None, 20), size_of(TEN, 6)
    (3, 2, 1, 20, 6)
    """
    if size is None:
        return num_clients
    if isinstance(size, float):
        return max(1, round(size * num_clients))
    return min(size, num_clients) if isinstance(size, AtMost) else size


@dataclass(frozen=True)
class FixedSize(Selection, FixedCohort):
    """Select `cohort_size` of the available clients, or all of them if fewer are available.

    Args:
        cohort_size: number of clients in a round, from 1 to the number of clients; a share of the clients, such as 0.1; or
            None for all clients. The default is 10, or all clients if there are fewer.

    Raises:
        ConfigurationError: if `cohort_size` is none of these, or exceeds the number of clients.
    """

    cohort_size: Size = TEN

    def size(self, num_clients: int) -> int:
        """Return the number of clients in a round."""
        return size_of(self.cohort_size, num_clients)
