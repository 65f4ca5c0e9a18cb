"""Partition with a fixed number of classes per client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import refuse
from turnout.core.ranges import Count
from turnout.data.partition.base import Artificial, by_owner, deal, rows_by_class, too_many_classes


@dataclass(frozen=True)
class ClassesPerClient(Artificial, name="classes_per_client"):
    """Assign k classes to every client; each class is divided equally among its clients.

    In random order, each client takes the k classes with the fewest clients so far, with random ties, so the numbers of
    clients of any two classes differ by at most one. The examples of a class are shuffled and divided among its clients
    (sizes differ by at most one). With fewer than C / k clients, some classes are not used.

    Attributes:
        k: classes per client.

    Raises:
        ConfigurationError: if k is greater than the number of classes, or a class has fewer examples than clients.

    Example:
        >>> import numpy as np, turnout as to
        >>> labels = np.repeat(np.arange(4), 6)
        >>> shards = to.partition.ClassesPerClient(2).assign(labels, 4, seed=0)
        >>> [np.bincount(labels[rows], minlength=4).tolist() for rows in shards]
        [[0, 0, 3, 3], [0, 3, 0, 3], [3, 0, 3, 0], [3, 3, 0, 0]]

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017, section 3, has the idea (two shards of sorted examples for each client).
    """

    k: Count = 2

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        classes, of_class = rows_by_class(labels)
        if self.k > len(classes):
            raise too_many_classes("k", self.k, len(classes))
        holds = _balanced(num_clients, len(classes), self.k, rng)
        rows, owner = [], []
        for c, label in enumerate(classes):
            holders = rng.permutation(np.flatnonzero(holds[:, c]))
            if len(holders) > len(of_class[c]):
                raise refuse(
                    "num_clients",
                    given=num_clients,
                    needed=f"an example of class {label} for each of its {len(holders)} holders, of {len(of_class[c])}",
                    instead="Write fewer clients or a smaller k",
                )
            if len(holders):
                shuffled = rng.permutation(of_class[c])
                rows.append(shuffled)
                owner.append(deal(shuffled, holders))
        return by_owner(np.concatenate(rows), np.concatenate(owner), num_clients)


def _balanced(num_clients: int, num_classes: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return the classes of clients, bool ``[N, C]``, with k in each row, and column sums that differ by at most one."""
    holds = np.zeros((num_clients, num_classes), dtype=bool)
    holders = np.zeros(num_classes)
    for client in rng.permutation(num_clients):
        chosen = np.argsort(holders + rng.random(num_classes))[:k]
        holds[client, chosen] = True
        holders[chosen] += 1
    return holds
