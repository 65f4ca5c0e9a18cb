"""The base classes of partitions, and the row arithmetic they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, refuse
from turnout.core.random import generator
from turnout.core.registry import Family, Registered


@dataclass(frozen=True)
class Partition(Registered, ABC):
    """Base class of partitions, which say which client holds which example; a frozen dataclass of plain options."""

    family = Family("partition", "partitions", ("turnout.data.partition",))

    @abstractmethod
    def assign(
        self, labels: np.ndarray, num_clients: int | None, seed: int, client_ids: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Return the rows of each client: N int64 arrays without a common element.

        Args:
            labels: class of each example, integers ``[n]``; numbers to predict, float64 ``[n, ...]``, where there are no
                classes.
            num_clients: N; None, for all clients that the data have, only with `ById`.
            seed: of this partition; shares no random numbers with anything else that has the same seed.
            client_ids: the natural client of each example, int64 ``[n]``, or None.

        Raises:
            ConfigurationError: for a request that cannot be met, with the reason.
            DataError: where there are no examples, or no classes and the partition goes by them.
        """


@dataclass(frozen=True)
class Artificial(Partition):
    """A partition that makes clients up; checks what is asked before `_rows` answers."""

    by_class: ClassVar[bool] = True
    """True where it goes by the classes of the examples."""

    def assign(
        self, labels: np.ndarray, num_clients: int | None, seed: int, client_ids: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """See `Partition.assign`; natural ids are ignored."""
        del client_ids
        if len(labels) == 0:
            raise DataError("there are no examples to partition")
        if self.by_class:
            check_labels(type(self).__name__, labels)
        if num_clients is None:
            name = type(self).__name__
            raise refuse(
                "num_clients",
                given=None,
                needed=f"a whole number >= 1, because {name} makes clients up",
                instead="Only ById() can take the clients that the data have",
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
        """Return the rows of each client, for arguments known to be sound."""


def check_labels(partition: str, labels: np.ndarray) -> None:
    """Refuse labels that are not one whole number for each example."""
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"{partition} goes by class labels, one whole number for each example, and the targets are numbers of shape "
            f"{list(labels.shape)}: write Iid(), or ById() with client ids"
        )


def rows_by_class(labels: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the classes that occur, ascending ``[C]``, and the rows of each in the order of the data."""
    classes, counts = np.unique(labels, return_counts=True)
    return classes, np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])


def by_owner(rows: np.ndarray, owner: np.ndarray, num_clients: int) -> list[np.ndarray]:
    """Return the rows of each client, where ``rows[i]`` belongs to client ``owner[i]``; the order of `rows` is kept."""
    sizes = np.bincount(owner, minlength=num_clients)
    return np.split(rows[np.argsort(owner, kind="stable")], np.cumsum(sizes)[:-1])


def deal(rows: np.ndarray, holders: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the owner of each row when `holders` take consecutive blocks of `rows` whose sizes differ by one at most."""
    return np.asarray(holders)[np.arange(len(rows)) * len(holders) // len(rows)]


def too_many_classes(option: str, number: int, present: int) -> ConfigurationError:
    """Return the refusal of more classes than the data have."""
    return refuse(option, given=number, needed=f"at most {present}, the number of classes in the data")
