"""The options of a secure sum, on which server and clients agree."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.checks import ConfigurationError
from turnout.protocol.secure.fixed_point import FixedPoint


@dataclass(frozen=True)
class Masking:
    """The options of a secure sum, on which its server and its clients agree.

    Attributes:
        code: fixed-point code of numbers.
        threshold: fraction of a client's neighbors whose shares remove its masks, > 0.5 and at most 1.
        min_clients: smallest number of clients in a sum.
        degree: number of neighbors of a client; None makes all clients neighbors of each other.
        weights: smallest and largest weight that a client accepts; None accepts all weights >= 0.

    Example:
        >>> Masking(FixedPoint(bits=32), threshold=0.6, min_clients=3, degree=5).num_neighbors(100)
        6
    """

    code: FixedPoint
    threshold: float
    min_clients: int
    degree: int | None = None
    weights: tuple[float, ...] | None = None

    @property
    def even_degree(self) -> int | None:
        """Largest number of neighbors: `degree`, rounded up to an even number; None is unbounded."""
        return None if self.degree is None else 2 * ((self.degree + 1) // 2)

    def check_clients(self, number: float, name: str) -> None:
        """Check that a sum can be opened.

        Args:
            number: largest number of clients in a sum.
            name: the option that determines it.

        Raises:
            ConfigurationError: if that is less than `min_clients`.
        """
        if number < self.min_clients:
            raise ConfigurationError(
                f"{name}: got {number}, but a secure sum has at least {self.min_clients} clients (min_clients), so none "
                f"can ever be opened: write {name}={self.min_clients} or more, or a smaller min_clients"
            )

    def num_neighbors(self, num_clients: int) -> int:
        """Return the number of neighbors of a client among n clients."""
        others = max(num_clients - 1, 0)
        return others if self.even_degree is None else min(self.even_degree, others)
