"""Requirements of clients: the quality of a model with which they participate (MaxFL, definition 1)."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, is_finite, refuse
from turnout.core.ranges import Count, Positive
from turnout.core.registry import Family, Registered
from turnout.population.table import by_number, check_path, clients, numbered, numbers, read_table

if TYPE_CHECKING:
    from turnout.base import Local

__all__ = ["BoundRequirement", "GivenRequirement", "Requirement", "WarmUp"]

Measure = Literal["loss", "accuracy"]

Solo = Mapping[str, np.ndarray]
"""Figures of each client's locally trained model on its own data: ``train_loss``, ``train_accuracy`` and, where clients have
test examples, ``test_loss`` and ``test_accuracy``, float64 ``[N]``."""


@dataclass(frozen=True)
class Requirement(Registered, ABC):
    """Base class of requirements; `bind` computes a number for each client of a run."""

    family = Family("requirement", "requirements", ("turnout.population.requirement",))

    def of_clients(self, names: Sequence[str] | None) -> Requirement:
        """Return the requirement for clients with these names; only tables that name clients differ from themselves.

        Raises:
            DataError: if a table names other clients.
        """
        return self

    @abstractmethod
    def solo(self, local: Local) -> Local | None:
        """Return the rule by which clients train local models before the first round; None if none are needed."""

    @abstractmethod
    def bind(self, num_clients: int, solo: Solo | None, unseen: bool = False) -> BoundRequirement | None:
        """Fit the requirement to N clients; None for unseen clients without a requirement.

        Args:
            num_clients: N.
            solo: figures of the local models, if the method `solo` returned a rule.
            unseen: True for the clients that never train.

        Raises:
            ConfigurationError: if the options do not fit the clients.
            DataError: if a table is missing or damaged.
        """


@dataclass(frozen=True, eq=False)
class BoundRequirement:
    """Requirements of N clients: a loss below, or an accuracy above, rho_k.

    Attributes:
        measure: ``"loss"`` or ``"accuracy"``.
        train: rho_k on the client's training examples, float64 ``[N]``.
        test: rho_k on its test examples, float64 ``[N]``; None where clients have none.
        solo_accuracy: test accuracy of the local models, float64 ``[N]``; None without test examples or local models.
    """

    measure: str
    train: np.ndarray
    test: np.ndarray | None = None
    solo_accuracy: np.ndarray | None = None

    def of(self, split: str) -> np.ndarray | None:
        """Return rho_k on ``"train"`` or ``"test"`` examples."""
        return self.train if split == "train" else self.test

    def gap(self, loss: Any, accuracy: Any, required: Any) -> Any:
        """Return how far a model falls short of a requirement, for losses ``F_k - rho_k``; < 0 if it is met."""
        return loss - required if self.measure == "loss" else required - accuracy


@dataclass(frozen=True)
class WarmUp(Requirement, name="warm_up"):
    """The federated model has to beat the client's local model: ``rho_k = F_k(w_k)`` (MaxFL, section 3).

    Every client trains its local model w_k with `steps` local steps from the initial model, by the local rule of the
    algorithm without its corrections. The requirement on test examples is the loss of w_k on them.

    Args:
        steps: local steps of the local model.
        measure: ``"loss"`` or ``"accuracy"``.
        lr: learning rate; None is that of the algorithm, as in the paper. Set it to compare algorithms with different
            learning rates under the same requirements.
        batch_size: examples in a minibatch; None is that of the algorithm.

    Example:
        >>> import turnout as to
        >>> data = to.data.digits().split(to.partition.Iid(), num_clients=3)
        >>> population = to.Population(requirement=to.requirement.WarmUp(steps=20))
        >>> experiment = to.Experiment(data, to.models.Logistic(), to.maxfl(), population=population, rounds=1)
        >>> result = experiment.run()
        >>> [round(loss, 1) for loss in result.clients["requirement"].to_pylist()]  # of models of 20 local steps
        [1.9, 1.9, 1.9]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    steps: Count = 100
    measure: Measure = "loss"
    lr: Positive | None = None
    batch_size: Count | None = None

    def solo(self, local: Local) -> Local:
        """Return the local rule of the algorithm with `steps` steps."""
        rule, options = local.alone(self.steps), {"lr": self.lr, "batch_size": self.batch_size}
        options = {name: value for name, value in options.items() if value is not None}
        if missing := options.keys() - {field.name for field in fields(rule)}:  # type: ignore[arg-type]
            raise ConfigurationError(f"{type(rule).__name__} has no {' and no '.join(sorted(missing))}: leave it out")
        return replace(rule, **options)  # type: ignore[type-var]

    def bind(self, num_clients: int, solo: Solo | None, unseen: bool = False) -> BoundRequirement:
        """Return the figures of the local models."""
        assert solo is not None
        test = solo.get(f"test_{self.measure}")
        return BoundRequirement(self.measure, solo[f"train_{self.measure}"], test, solo.get("test_accuracy"))


@dataclass(frozen=True)
class GivenRequirement(Requirement, name="given"):
    """Every client has a fixed requirement, the same on its training and on its test examples.

    Args:
        table: path of a CSV or Parquet file with the columns client and requirement, or a number for each client. Clients
            are the names of the data's clients, or numbers from 0 on.
        measure: ``"loss"`` or ``"accuracy"``.
        unseen: the same for the clients that never train, which have numbers; None for no requirements.

    Raises:
        ConfigurationError: if the number of requirements is not that of clients, a loss is negative, or an accuracy is
            outside [0, 1].
        DataError: if a file is missing or unreadable, or has not exactly one row for each client.

    Example:
        >>> import turnout as to
        >>> to.requirement.GivenRequirement((0.5, 0.9), measure="accuracy").bind(2, None).train.tolist()
        [0.5, 0.9]
    """

    table: str | tuple[float, ...] | Any
    measure: Measure = "loss"
    unseen: str | tuple[float, ...] | Any | None = None

    def __post_init__(self) -> None:
        for name in ("table", "unseen"):
            table = getattr(self, name)
            if isinstance(table, str | os.PathLike):
                object.__setattr__(self, name, os.fspath(table))
                check_path(os.fspath(table), "requirements")
            elif isinstance(table, Sequence):
                object.__setattr__(self, name, tuple(table))
                self._check(table)
            elif table is not None or name == "table":
                raise refuse(name, given=table, needed="a path to .csv or .parquet, or a number for each client")

    def _check(self, values: Sequence[Any]) -> None:
        """Raise an error for a value that is not a loss, or not an accuracy."""
        most, needed = (math.inf, "a finite number >= 0") if self.measure == "loss" else (1.0, "a number from 0 to 1")
        for client, value in enumerate(values):
            if not is_finite(value) or not 0 <= value <= most:
                raise refuse(
                    f"requirement of client {client}", given=value, needed=f"{needed}, for it is of the {self.measure}"
                )

    def of_clients(self, names: Sequence[str] | None) -> GivenRequirement:
        """Return the requirement with a number for each client in place of a table that names clients."""
        if not isinstance(self.table, str):
            return self
        client, values = _rows(self.table)
        if (number := numbered(client, names, f"requirements {self.table}")) is None:
            return self
        return replace(self, table=_by_client(self.table, number[number >= 0], values[number >= 0], len(names or ())))

    def solo(self, local: Local) -> None:
        """Return None: no local models are needed."""

    def bind(self, num_clients: int, solo: Solo | None, unseen: bool = False) -> BoundRequirement | None:
        """Return the listed requirements."""
        table = self.unseen if unseen else self.table
        if table is None:
            return None
        values = _by_client(table, *_rows(table), num_clients) if isinstance(table, str) else table
        self._check(values)
        if len(values) != num_clients:
            which = "unseen clients" if unseen else "clients"
            raise ConfigurationError(f"{len(values)} requirements were given for {num_clients} {which}")
        required = np.array(values, dtype=np.float64)
        return BoundRequirement(self.measure, required, required)


def _rows(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the clients and requirements of the rows of a file."""
    what = f"requirements {path}"
    columns = read_table(path, "requirements", ("client", "requirement"), texts=("client",))
    return clients(columns["client"], what), numbers(columns["requirement"], "requirement", what)


def _by_client(path: str, client: np.ndarray, values: np.ndarray, num_clients: int) -> list[float]:
    """Return the requirements of a file, ordered by client, of which each has one row."""
    numbers = np.concatenate([by_number(client, f"requirements {path}"), np.arange(num_clients)])
    known, rows = np.unique(numbers, return_counts=True)
    rows[known < num_clients] -= 1  # the one that `arange` adds for each client
    if len(wrong := np.flatnonzero(rows != (known < num_clients))):
        raise DataError(
            f"requirements {path}: client {known[wrong[0]]} has {rows[wrong[0]]} rows; needed one for each of the clients 0 "
            f"to {num_clients - 1}, and no others"
        )
    return values[np.argsort(client)].tolist()
