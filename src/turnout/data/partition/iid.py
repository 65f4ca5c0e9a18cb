"""Partition into random samples of the same size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.data.partition.base import Artificial


@dataclass(frozen=True)
class Iid(Artificial, name="iid"):
    """Shuffle the examples and divide them equally; sizes differ by at most one, and every example is used.

    Example:
        >>> import numpy as np, turnout as to
        >>> [len(rows) for rows in to.partition.Iid().assign(np.zeros(11, dtype=int), 3, seed=0)]
        [4, 4, 3]
    """

    by_class: ClassVar[bool] = False

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        return np.array_split(rng.permutation(len(labels)), num_clients)
