"""Requirements of clients: how good a model has to be for them to join (MaxFL, definition 1)."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, is_finite, known_name, positive, refuse
from turnout.core.registry import Family, Registered
from turnout.population.table import check_path, numbers, read_table

if TYPE_CHECKING:
    from turnout.pieces.base import Local

__all__ = ["BoundRequirement", "GivenRequirement", "Requirement", "WarmUp"]

Measure = Literal["loss", "accuracy"]
MEASURES = ("loss", "accuracy")

Solo = Mapping[str, np.ndarray]
"""Figures of each client's own model on its own data, ``train_loss``, ``train_accuracy`` and, where clients have test
examples, ``test_loss`` and ``test_accuracy``, float64 ``[N]``."""


@dataclass(frozen=True)
class Requirement(Registered, ABC):
    """The options of what clients require; `bind` makes it a number for each client of one run."""

    family = Family("requirement", "requirements", ("turnout.population.requirement",))

    @abstractmethod
    def solo(self, local: Local) -> Local | None:
        """Return the rule by which clients train models of their own before the first round; None if there is no need."""

    @abstractmethod
    def bind(self, num_clients: int, solo: Solo | None, unseen: bool = False) -> BoundRequirement | None:
        """Fit it to N clients.

        Args:
            num_clients: N.
            solo: how well their own models do, where `solo` has asked for them.
            unseen: whether they are the clients that never train; None comes back where nothing is known of those.

        Raises:
            ConfigurationError: where the options do not fit the clients.
            DataError: for a table that is missing or damaged.
        """


@dataclass(frozen=True, eq=False)
class BoundRequirement:
    """Requirements of N clients: a loss below, or an accuracy above, rho_k.

    Attributes:
        measure: whether it is a loss or an accuracy.
        train: rho_k on the client's training examples, float64 ``[N]``.
        test: rho_k on its test examples, float64 ``[N]``; None where clients have none.
        solo_accuracy: test accuracy of its own model, float64 ``[N]``; None without test examples or own model.
    """

    measure: str
    train: np.ndarray
    test: np.ndarray | None = None
    solo_accuracy: np.ndarray | None = None

    def of(self, split: str) -> np.ndarray | None:
        """Return rho_k on ``"train"`` or ``"test"`` examples."""
        return self.train if split == "train" else self.test

    def gap(self, loss: Any, accuracy: Any, required: Any) -> Any:
        """Return how far the model falls short of what is `required`, < 0 where it is better: ``F_k - rho_k`` of losses."""
        return loss - required if self.measure == "loss" else required - accuracy


@dataclass(frozen=True)
class WarmUp(Requirement, name="warm_up"):
    """A client wants to do better than alone: ``rho_k = F_k(w_k)``, w_k a model of its own (MaxFL, section 3).

    Every client takes `steps` local steps from the initial model, by the local rule of the algorithm without its
    corrections. Its data are asked again for what counts as the same requirement of the true loss: on test examples it is
    the loss of w_k there.

    Args:
        steps: local steps of the own model.
        measure: ``"loss"`` or ``"accuracy"``.
        lr: step size; None is that of the algorithm, as in the paper. Algorithms with different step sizes have the same
            requirements only where it is given.
        batch_size: examples in a minibatch; None is that of the algorithm.

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    steps: int = 100
    measure: Measure = "loss"
    lr: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        count("steps", self.steps)
        known_name("measure", self.measure, MEASURES)
        if self.lr is not None:
            positive("lr", self.lr)
        if self.batch_size is not None:
            count("batch_size", self.batch_size)

    def solo(self, local: Local) -> Local:
        """Return the algorithm's local rule for so many steps."""
        rule, options = local.alone(self.steps), {"lr": self.lr, "batch_size": self.batch_size}
        options = {name: value for name, value in options.items() if value is not None}
        if missing := options.keys() - {field.name for field in fields(rule)}:  # type: ignore[arg-type]
            raise ConfigurationError(f"{type(rule).__name__} has no {' and no '.join(sorted(missing))}: leave it out")
        return replace(rule, **options)  # type: ignore[type-var]

    def bind(self, num_clients: int, solo: Solo | None, unseen: bool = False) -> BoundRequirement:
        """Return what the own models reach."""
        del num_clients, unseen
        assert solo is not None
        test = solo.get(f"test_{self.measure}")
        return BoundRequirement(self.measure, solo[f"train_{self.measure}"], test, solo.get("test_accuracy"))


@dataclass(frozen=True)
class GivenRequirement(Requirement, name="given"):
    """Every client says what it requires, the same of its training and of its test examples.

    Args:
        table: path of a CSV or Parquet file with the columns client and requirement, or a number for each client.
        measure: ``"loss"`` or ``"accuracy"``.
        unseen: the same for the clients that never train; None says nothing of them.

    Raises:
        ConfigurationError: for numbers that are not as many as clients, a negative loss, or an accuracy outside [0, 1].
        DataError: for a file that is missing or unreadable, or where a client has no row, or two.
    """

    table: str | tuple[float, ...]
    measure: Measure = "loss"
    unseen: str | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        known_name("measure", self.measure, MEASURES)
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
        """Refuse what is no loss, or no accuracy."""
        most, needed = (math.inf, "a finite number >= 0") if self.measure == "loss" else (1.0, "a number from 0 to 1")
        for client, value in enumerate(values):
            if not is_finite(value) or not 0 <= value <= most:
                raise refuse(
                    f"requirement of client {client}", given=value, needed=f"{needed}, for it is of the {self.measure}"
                )

    def solo(self, local: Local) -> None:
        """No own models."""
        del local

    def bind(self, num_clients: int, solo: Solo | None, unseen: bool = False) -> BoundRequirement | None:
        """Return the given numbers."""
        del solo
        table = self.unseen if unseen else self.table
        if table is None:
            return None
        values = _read(table, num_clients) if isinstance(table, str) else table
        self._check(values)
        if len(values) != num_clients:
            which = "unseen clients" if unseen else "clients"
            raise ConfigurationError(f"{len(values)} requirements were given for {num_clients} {which}")
        required = np.array(values, dtype=np.float64)
        return BoundRequirement(self.measure, required, required)


def _read(path: str, num_clients: int) -> list[float]:
    """Return the requirements in a file, by client."""
    columns = read_table(path, "requirements", ("client", "requirement"))
    clients = numbers(columns["client"], "client", f"requirements {path}", whole=True)
    values = numbers(columns["requirement"], "requirement", f"requirements {path}")
    known, rows = np.unique(np.concatenate([clients, np.arange(num_clients)]), return_counts=True)
    rows[known < num_clients] -= 1  # of each client there is one more
    if len(wrong := np.flatnonzero(rows != (known < num_clients))):
        raise DataError(
            f"requirements {path}: client {known[wrong[0]]} has {rows[wrong[0]]} rows; needed one for each of the clients 0 "
            f"to {num_clients - 1}, and no others"
        )
    return values[np.argsort(clients)].tolist()
