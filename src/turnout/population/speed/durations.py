"""Define durations of tasks, and the base classes of models of speed.

A duration is a pure function of (seed, client, index of the client's task), as availability is of (seed, client, round).
The third task of client 7 has the same duration in every run of a comparison, whatever was selected before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core.registry import Family, Registered

Seconds = np.ndarray
"""Durations in seconds, float64."""


@dataclass(frozen=True, eq=False)
class Durations:
    """Durations of the parts of B tasks, in seconds, float64 ``[B]`` each.

    Attributes:
        download: duration of the download of the model.
        compute: duration of local training.
        upload: duration of the upload of the report.
    """

    download: Seconds
    compute: Seconds
    upload: Seconds

    @property
    def total(self) -> Seconds:
        """Seconds from the request of the server to the arrival of the report, ``[B]``."""
        return self.download + self.compute + self.upload


@dataclass(frozen=True)
class SpeedModel(Registered, ABC):
    """Options of a model of speed; `bind` fits it to the clients of a run."""

    family = Family("speed", "speeds", ("turnout.population.speed",))

    def of_clients(self, names: Sequence[str] | None) -> SpeedModel:
        """Return the model for clients with these names; only tables that name clients differ from themselves.

        Raises:
            DataError: if a table names other clients.
        """
        return self

    @abstractmethod
    def bind(self, num_clients: int, seed: int = 0) -> BoundSpeed:
        """Fit the model to N clients.

        Raises:
            ConfigurationError: if options do not fit the clients.
            DataError: if a table is missing or damaged.
        """


@dataclass(frozen=True, eq=False)
class BoundSpeed(ABC):
    """A model of speed bound to the N clients of a run."""

    num_clients: int

    @abstractmethod
    def seconds(
        self,
        clients: np.ndarray,
        tasks: np.ndarray,
        num_steps: np.ndarray | int = 1,
        bytes_up: int = 0,
        bytes_down: int = 0,
    ) -> Durations:
        """Return the durations of B tasks.

        Args:
            clients: int64 ``[B]``; any order, repeats allowed.
            tasks: index of each task among its client's tasks, 0 for the first one, int64 ``[B]``.
            num_steps: local steps of each task, ``[B]`` or one number for all.
            bytes_up: size of a report.
            bytes_down: size of a download.
        """

    @property
    @abstractmethod
    def seconds_per_step(self) -> Seconds:
        """The mean computing time of one local step of each client, float64 ``[N]``.

        Raises:
            ConfigurationError: if computing time does not depend on the number of steps.
        """

    @abstractmethod
    def communication_quantile(self, q: float, bytes_up: int = 0, bytes_down: int = 0) -> Seconds:
        """Return the q-quantile of each client's time for download and upload together, float64 ``[N]``.

        FOLB's T_k^c is the one at q = 0.99 (section V-A).

        Raises:
            ConfigurationError: if q is outside [0, 1].
        """
