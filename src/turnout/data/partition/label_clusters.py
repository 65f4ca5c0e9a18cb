"""Partition into clusters of clients with disjoint labels, IID within a cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import refuse
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
