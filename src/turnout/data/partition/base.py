"""Define the base classes of partitions, functions on rows, and partitions without classes: IID and by natural client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, refuse
from turnout.core.random import generator
from turnout.core.ranges import Count
from turnout.core.registry import Family, Registered


@dataclass(frozen=True)
class Partition(Registered, ABC):
    """Base class of partitions, which assign examples to clients; a frozen dataclass of plain options."""

    family = Family("partition", "partitions", ("turnout.data.partition",))

    @abstractmethod
    def assign(
        self, labels: np.ndarray, num_clients: int | None, seed: int, client_ids: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Return the rows of each client: N disjoint int64 arrays.

        Args:
            labels: class of each example, integers ``[n]``; without classes numbers to predict, float64 ``[n, ...]``.
            num_clients: N; None, for all natural clients, only with `ById`.
            seed: seed of a random stream that only partitions use.
            client_ids: the natural client of each example, int64 ``[n]``, or None.

        Raises:
            ConfigurationError: if options do not fit the data.
            DataError: if there are no examples, or no classes and the partition needs them.
        """


@dataclass(frozen=True)
class Artificial(Partition):
    """Base class of partitions with artificial clients; checks the arguments and calls `_rows`."""

    by_class: ClassVar[bool] = True
    """True if the partition depends on the classes of the examples."""

    def assign(
        self, labels: np.ndarray, num_clients: int | None, seed: int, client_ids: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """See `Partition.assign`; natural ids are ignored."""
        if len(labels) == 0:
            raise DataError("there are no examples to partition")
        if self.by_class:
            check_labels(type(self).__name__, labels)
        if num_clients is None:
            name = type(self).__name__
            raise refuse(
                "num_clients",
                given=None,
                needed=f"a whole number >= 1, the number of clients that {name} makes",
                instead="Only ById() takes its clients from the data",
            )
        count("num_clients", num_clients)
        if num_clients > len(labels):
            raise refuse(
                "num_clients",
                given=num_clients,
                needed=f"at most as many clients as examples, {len(labels)}",
                instead="Write fewer clients, or set fewer examples aside for tests",
            )
        return self._rows(labels, num_clients, generator("partition", seed))

    @abstractmethod
    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the rows of each client, for valid arguments."""


def check_labels(partition: str, labels: np.ndarray) -> None:
    """Raise an error for labels that are not one integer for each example."""
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"{partition} goes by class labels, one whole number for each example, and the targets are numbers of shape "
            f"{list(labels.shape)}: write Iid(), or ById() with client ids"
        )


def rows_by_class(labels: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the classes in the data, ascending ``[C]``, and the rows of each in the order of the data."""
    classes, counts = np.unique(labels, return_counts=True)
    return classes, np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])


def by_owner(rows: np.ndarray, owner: np.ndarray, num_clients: int) -> list[np.ndarray]:
    """Group rows by client, where ``rows[i]`` belongs to client ``owner[i]``; the order of `rows` is preserved."""
    sizes = np.bincount(owner, minlength=num_clients)
    return np.split(rows[np.argsort(owner, kind="stable")], np.cumsum(sizes)[:-1])


def deal(rows: np.ndarray, holders: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the owner of each row, for consecutive blocks of `rows` whose sizes differ by at most one."""
    return np.asarray(holders)[np.arange(len(rows)) * len(holders) // len(rows)]


def too_many_classes(option: str, number: int, present: int) -> ConfigurationError:
    """Return the error for more classes than the data have."""
    return refuse(option, given=number, needed=f"at most {present}, the number of classes in the data")


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
