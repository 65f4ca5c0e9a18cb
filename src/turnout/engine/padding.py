"""Round numbers of lanes up to few sizes, because every number of lanes is a shape that is traced anew."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Multiplications in a step of a small MLP with one thread: so many take as long as its operations through Python, and so
# many go unnoticed beside the operations of a replayed step.
_SPARE, _CHEAP = 2_000_000, 400_000
_FEWEST = 4  # cheap lanes in a multiple of which there is a size
_SPARE_ON_GPU, _CHEAP_ON_GPU = 200_000_000, 2_000_000


@dataclass(frozen=True)
class LaneSizes:
    """The numbers of lanes with which steps are computed.

    A lane is a client that trains beside others. Idle lanes repeat a client, and nothing reads their results.

    Attributes:
        per_doubling: sizes between a power of two and the next.
        spare: largest number of multiplications of all idle lanes in a step, so that expensive lanes are not idle.
        cheap: number of multiplications of idle lanes up to which there are still fewer sizes.
        usual: numbers of clients in a cohort that are not rounded, because they return in almost every round.

    Example:
        >>> [LaneSizes(2).rounded(lanes, 300_000) for lanes in (1, 3, 5, 9, 12, 13, 33)]
        [1, 4, 6, 12, 12, 16, 36]
        >>> [LaneSizes(2).rounded(lanes, 1_500_000) for lanes in (5, 9, 13)]
        [6, 10, 14]
    """

    per_doubling: int
    spare: int = _SPARE
    cheap: int = _CHEAP
    usual: frozenset[int] = frozenset()

    @classmethod
    def of(cls, device: torch.device) -> LaneSizes:
        """Return the sizes for a device: on a GPU a trace takes longer to make, and further lanes cost little."""
        return cls(2) if device.type == "cpu" else cls(4, _SPARE_ON_GPU, _CHEAP_ON_GPU)

    def rounded(self, lanes: int, products: int) -> int:
        """Return the number of lanes to compute.

        Args:
            lanes: number of clients that train.
            products: multiplications of a step of one client.
        """
        if lanes <= 1:  # one client alone, as on a real machine
            return lanes
        quantum = (1 << lanes.bit_length() - 1) // self.per_doubling
        quantum = max(quantum, min(_power_of_two(self.cheap // products + 1), _FEWEST))
        quantum = min(quantum, _power_of_two(self.spare // products + 1))
        return lanes + -lanes % quantum

    def of_part(self, lanes: int, cohort: int, products: int) -> int:
        """Return the number of lanes of a thread.

        Args:
            lanes: number of its clients.
            cohort: number of clients of all threads.
            products: as in `rounded`.
        """
        return lanes if cohort in self.usual else self.rounded(lanes, products)


def _power_of_two(number: int) -> int:
    """Return the largest power of two up to a number >= 1."""
    return 1 << number.bit_length() - 1
