"""Partition by the natural clients of the data, such as writers, speakers or users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, refuse
from turnout.core.random import generator
from turnout.core.ranges import Count
from turnout.data.partition.base import Partition, by_owner

ARTIFICIAL = (
    "Dirichlet(alpha=0.1), HsuDirichlet(alpha=1.0), LabelClusters(num_clusters=5, labels_per_cluster=2), "
    "ClassesPerClient(k=2), PowerLaw() or Iid()"
)
"""Partitions for data without natural clients, for messages."""


@dataclass(frozen=True)
class ById(Partition, name="by_id"):
    """Make one client of each natural client id, in ascending order of the ids.

    With a number of clients m, m of the ids are drawn at random, and the examples of the others are not used. Rows keep the
    order of the data.

    Attributes:
        min_examples: ids with fewer examples are skipped.

    Raises:
        ConfigurationError: if the data have no ids, or fewer than m ids have enough examples.

    Example:
        >>> import numpy as np, turnout as to
        >>> hospitals = np.array([7, 3, 7, 9, 3, 7])
        >>> [rows.tolist() for rows in to.partition.ById(min_examples=2).assign(np.zeros(6, dtype=int), None, 0, hospitals)]
        [[1, 4], [0, 2, 5]]
    """

    min_examples: Count = 1

    def assign(
        self, labels: np.ndarray, num_clients: int | None, seed: int, client_ids: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """See `Partition.assign`."""
        if len(labels) == 0:
            raise DataError("there are no examples to partition")
        if client_ids is None:
            raise ConfigurationError(f"ById(): the data have no client ids; write to.partition.{ARTIFICIAL}")
        if len(client_ids) != len(labels):
            raise DataError(f"client_ids: got {len(client_ids)}, needed one for each of {len(labels)} examples")
        if num_clients is not None:
            count("num_clients", num_clients)
        _, owner, sizes = np.unique(client_ids, return_inverse=True, return_counts=True)
        chosen = np.flatnonzero(sizes >= self.min_examples)
        if len(chosen) < (num_clients or 1):
            raise refuse(
                "num_clients",
                given=num_clients,
                needed=f"at most {len(chosen)}, the natural clients that have {self.min_examples} examples or more",
                instead="Write fewer clients, a smaller min_examples, or no num_clients for all there are",
            )
        if num_clients is not None:
            chosen = np.sort(generator("partition", seed).choice(chosen, size=num_clients, replace=False))
        number = np.full(len(sizes), -1)
        number[chosen] = np.arange(len(chosen))
        rows = np.flatnonzero(number[owner] >= 0)
        return by_owner(rows, number[owner[rows]], len(chosen))
