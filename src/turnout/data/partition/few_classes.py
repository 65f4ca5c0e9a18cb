"""Partitions with a few classes per client: a fixed number, or neighboring ones with sizes that follow a power law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import refuse
from turnout.core.ranges import Count, NotNegative
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


@dataclass(frozen=True)
class PowerLaw(Artificial, name="power_law"):
    """Assign a few neighboring classes to each client, with log-normal sizes.

    Client u has the classes (u + j) mod C, j < `classes_per_client`. It gets `least` examples of each; the remaining R_c
    examples of a class are divided in proportion to one log-normal number for each of its clients::

        share of client h = floor(R_c * z_h / sum_h' z_h'),   z_h = exp(sigma * Normal(0, 1))

    Rows are assigned in the order of the data, and the remainder of the floor is not used. The mean of the logarithm would
    cancel, so it is not an option. The authors' script skips a share that would end exactly with the last example of its
    class; here it is assigned.

    Attributes:
        classes_per_client: number of neighboring classes of a client.
        sigma: standard deviation of the logarithm; 0 is equal shares.
        least: the least number of examples of each of its classes that a client has.

    Raises:
        ConfigurationError: if there are more classes than the data have, or a class has too few examples for `least`.

    Example:
        >>> import numpy as np, turnout as to
        >>> labels = np.repeat(np.arange(4), 100)
        >>> shards = to.partition.PowerLaw().assign(labels, 4, seed=0)
        >>> [np.bincount(labels[rows], minlength=4).tolist() for rows in shards]
        [[77, 29, 0, 0], [0, 70, 81, 0], [0, 0, 18, 86], [22, 0, 0, 13]]

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, and the authors' script for
    MNIST (1000 clients, 2 classes, sigma 2, least 5: the defaults).
    """

    classes_per_client: Count = 2
    sigma: NotNegative = 2.0
    least: Count = 5

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        classes, of_class = rows_by_class(labels)
        if self.classes_per_client > len(classes):
            raise too_many_classes("classes_per_client", self.classes_per_client, len(classes))
        client, offset = np.indices((num_clients, self.classes_per_client))
        held = (client + offset) % len(classes)
        # Shares depend only on ratios, and subtracting the greatest keeps the exponential finite for any sigma.
        logs = self.sigma * rng.standard_normal(held.shape)
        rows, owner = [], []
        for c, label in enumerate(classes):
            holders = client[held == c]
            needed = self.least * len(holders)
            if needed > len(of_class[c]):
                raise refuse(
                    "num_clients",
                    given=num_clients,
                    needed=f"{self.least} examples of class {label} for each of {len(holders)} holders, of "
                    f"{len(of_class[c])} that there are",
                    instead="Write fewer clients, a smaller least or fewer classes_per_client",
                )
            if len(holders) == 0:
                continue
            share = np.exp(logs[held == c] - logs[held == c].max())
            extra = np.floor((len(of_class[c]) - needed) * share / share.sum()).astype(np.int64)
            owner.append(np.concatenate([holders.repeat(self.least), holders.repeat(extra)]))
            rows.append(of_class[c][: len(owner[-1])])
        return by_owner(np.concatenate(rows), np.concatenate(owner), num_clients)
