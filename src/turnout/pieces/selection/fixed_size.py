"""Base class of selections with a fixed number of clients in a round."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import Selection
from turnout.core.checks import count, refuse


@dataclass(frozen=True)
class FixedSize(Selection):
    """Select `cohort_size` of the available clients, or all of them if fewer are available.

    Args:
        cohort_size: number of clients in a round, from 1 to the number of clients.

    Raises:
        ConfigurationError: if `cohort_size` is not positive or exceeds the number of clients.
    """

    cohort_size: int = 10

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)

    def check(self, num_clients: int) -> None:
        """Raise an error if the federation has fewer clients than a cohort, or as `Selection.check` does."""
        super().check(num_clients)
        if self.cohort_size > num_clients:
            raise refuse(
                "cohort_size",
                given=self.cohort_size,
                needed=f"at most the number of clients, {num_clients}",
                instead=f"Write cohort_size={num_clients}, or AllAvailable() to select all available clients",
            )
