"""Partitions into clusters or groups of clients with disjoint labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count, refuse
from turnout.core.ranges import Count
from turnout.data.partition.base import Artificial, by_owner, deal, rows_by_class


@dataclass(frozen=True)
class LabelClusters(Artificial, name="label_clusters"):
    """Divide labels among clusters and clients among clusters; the clients of a cluster are IID.

    Cluster j has the j-th run of `labels_per_cluster` classes in ascending order; further classes are not used. Each cluster
    has one client, and the other clients join clusters independently at random. The examples of a cluster are shuffled and
    divided equally among its clients (sizes differ by at most one), so clients of small clusters have more examples.

    Attributes:
        num_clusters: number of clusters.
        labels_per_cluster: number of classes of each cluster.

    Raises:
        ConfigurationError: if there are more labels than the data have, fewer clients than clusters, or more clients in
            a cluster than examples.

    Example:
        >>> import numpy as np, turnout as to
        >>> labels = np.repeat(np.arange(4), 15)
        >>> shards = to.partition.LabelClusters(num_clusters=2, labels_per_cluster=2).assign(labels, 4, seed=0)
        >>> [np.bincount(labels[rows], minlength=4).tolist() for rows in shards]
        [[0, 0, 15, 15], [3, 7, 0, 0], [6, 4, 0, 0], [6, 4, 0, 0]]

    Reference: Cho et al., "Maximizing Global Model Appeal in Federated Learning", TMLR 2024, appendix D (5 clusters of
    2 labels).
    """

    num_clusters: Count = 5
    labels_per_cluster: Count = 2

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        classes, of_class = rows_by_class(labels)
        if self.num_clusters * self.labels_per_cluster > len(classes):
            raise refuse(
                "LabelClusters",
                given=f"{self.num_clusters} clusters x {self.labels_per_cluster} labels",
                needed=f"at most the {len(classes)} classes that the data have",
                instead="Write fewer clusters or fewer labels for each",
            )
        if num_clients < self.num_clusters:
            raise refuse(
                "num_clients", given=num_clients, needed=f"at least one for each of {self.num_clusters} clusters"
            )
        joined = rng.integers(self.num_clusters, size=num_clients - self.num_clusters)
        cluster = rng.permutation(np.concatenate([np.arange(self.num_clusters), joined]))
        rows, owner = [], []
        for j in range(self.num_clusters):
            run = of_class[j * self.labels_per_cluster : (j + 1) * self.labels_per_cluster]
            shared = rng.permutation(np.concatenate(run))
            members = np.flatnonzero(cluster == j)
            if len(members) > len(shared):
                raise refuse(
                    "LabelClusters",
                    given=f"{len(members)} clients in cluster {j}",
                    needed=f"no more than its {len(shared)} examples",
                    instead="Write fewer clients",
                )
            rows.append(shared)
            owner.append(deal(shared, members))
        return by_owner(np.concatenate(rows), np.concatenate(owner), num_clients)


@dataclass(frozen=True)
class LabelGroups(Artificial, name="label_groups"):
    """Assign disjoint labels to groups of clients; all clients of a group have equally many examples of each label.

    The default is the setting of FedStaleWeight: ten clients with the labels 4 to 9, followed by five slow ones with 0 to 3.
    Every client of a group has ``floor(examples / clients)`` examples of each label, drawn at random; the remainder, and
    labels of no group, are not used.

    Attributes:
        labels: labels of each group.
        clients: number of clients of each group.

    Raises:
        ConfigurationError: if a group has no labels or clients, labels are in several groups or not in the data, the
            number of clients is not that of all groups, or there are more clients than examples.

    Example:
        >>> import numpy as np, turnout as to
        >>> labels = np.repeat(np.arange(4), 10)
        >>> shards = to.partition.LabelGroups(labels=((0, 1), (2, 3)), clients=(2, 1)).assign(labels, 3, seed=0)
        >>> [np.bincount(labels[rows], minlength=4).tolist() for rows in shards]
        [[5, 5, 0, 0], [5, 5, 0, 0], [0, 0, 10, 10]]

    Reference: Ma et al., "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness
    reweighting", 2024, section 5.
    """

    labels: tuple[tuple[int, ...], ...] = ((4, 5, 6, 7, 8, 9), (0, 1, 2, 3))
    clients: tuple[int, ...] = (10, 5)

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.clients) or not self.labels:
            raise refuse(
                "clients", given=self.clients, needed=f"one number for each of {len(self.labels)} groups of labels"
            )
        for members in self.clients:
            count("clients", members)
        every = [label for group in self.labels for label in group]
        if not all(self.labels) or len(set(every)) < len(every):
            raise refuse("labels", given=self.labels, needed="at least one for each group, none of them in two groups")

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        if num_clients != sum(self.clients):
            raise refuse("num_clients", given=num_clients, needed=f"as many as the groups have, {sum(self.clients)}")
        classes, of_class = rows_by_class(labels)
        where = dict(zip(classes.tolist(), of_class, strict=True))
        held: list[np.ndarray] = []
        for group, members in zip(self.labels, self.clients, strict=True):
            parts = []
            for label in group:
                rows = where.get(label, np.empty(0, dtype=np.int64))
                size = len(rows) // members
                if not size:
                    raise refuse(
                        "labels", given=label, needed=f"one of which each of {members} clients can have an example"
                    )
                parts.append(rng.permutation(rows)[: size * members].reshape(members, size))
            held += list(np.concatenate(parts, axis=1))
        return held
