"""Base class of selections with a fixed number of clients in a round."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.checks import count, refuse
from turnout.pieces.base import Selection


@dataclass(frozen=True)
class FixedSize(Selection):
    """Choose `cohort_size` of the available clients, or all of them if there are fewer.

    Args:
        cohort_size: clients in a round; at most the number of clients.

    Raises:
        ConfigurationError: for a cohort that is empty or larger than the federation.
    """

    cohort_size: int = 10

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)

    def check(self, num_clients: int) -> None:
        """Refuse a federation with fewer clients than a cohort, besides what other selections refuse."""
        super().check(num_clients)
        if self.cohort_size > num_clients:
            raise refuse(
                "cohort_size",
                given=self.cohort_size,
                needed=f"at most the number of clients, {num_clients}",
                instead=f"Write cohort_size={num_clients}, or AllAvailable() to take everyone who is there",
            )
