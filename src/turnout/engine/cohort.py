"""B clients at work: who they are, what they hold, and what they find at the model they received."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.core.random import fold, stream
from turnout.core.types import Task
from turnout.engine.examples import Examples
from turnout.engine.full_batch import full_gradient, mean_square_loss, weighted_scores


class Required(Protocol):
    """What clients require of a model (see `turnout.population.requirement.BoundRequirement`)."""

    @property
    def train(self) -> np.ndarray:
        """rho_k on the client's training examples, float64 ``[N]``."""
        ...

    def gap(self, loss: Any, accuracy: Any, required: Any) -> Any:
        """How much the model falls short of what is `required`."""
        ...


class StepTimes(Protocol):
    """How fast clients are (see `turnout.population.speed.durations.BoundSpeed`)."""

    @property
    def seconds_per_step(self) -> np.ndarray:
        """The mean computing time of one local step of each client, float64 ``[N]``."""
        ...

    def communication_quantile(self, q: float, bytes_up: int = 0, bytes_down: int = 0) -> np.ndarray:
        """Return the q-quantile of each client's time for download and upload together, float64 ``[N]``."""
        ...


@dataclass(frozen=True, eq=False)
class Clients(Examples):
    """The lanes of one `client_step`.

    Attributes:
        start: what they found at the model they received; None where nobody asked.
        requirement: what the clients of `shards` require of a model; None where nobody asks.
        speed: how fast the clients of the federation are; None where there is no clock.
        message_bytes: size of a report, and of what a client receives; None while nobody has seen any.
    """

    start: Start | None = None
    requirement: Required | None = None
    speed: StepTimes | None = None
    message_bytes: tuple[int, int] | None = None

    def at(self, task: Task) -> tuple[Clients, Start]:
        """Return the clients with what they find at the model of a task, and that: it is computed when it is asked for."""
        start = Start(task, self)
        return replace(self, start=start), start

    def keys(
        self, purpose: str, seed: int, versions: np.ndarray, lanes: slice | np.ndarray = slice(None)
    ) -> torch.Tensor:
        """64 random bits for each client, int64 ``[B]`` on the device, that depend on (seed, version, client) alone."""
        bits = fold(stream(purpose, seed), versions[lanes], self.ids[lanes])
        return to_device(bits, self.objective.device)


class Start:
    """What B clients find at the model of a task, computed when it is first asked for, and once.

    Args:
        task: the model they received.
        clients: who they are.

    Attributes:
        task: as given.
        clients: as given.
    """

    def __init__(self, task: Task, clients: Clients) -> None:
        self.task, self.clients = task, clients

    @property
    def params(self) -> torch.Tensor:
        """The model they received, ``[P]`` or ``[B, P]``."""
        return self.task.params

    @cached_property
    def _both(self) -> tuple[torch.Tensor, torch.Tensor]:
        return full_gradient(self.clients, self.params)

    @cached_property
    def _scores(self) -> torch.Tensor:
        return weighted_scores(self.clients, self.params)

    @property
    def known(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Loss and gradient, if somebody has asked for the gradient."""
        return self.__dict__.get("_both")

    @property
    def gradient(self) -> torch.Tensor:
        """``grad F_k(w^t)`` over all of a client's examples, ``[B, P]``."""
        return self._both[1]

    @property
    def loss(self) -> torch.Tensor:
        """``F_k(w^t)`` over all of a client's examples, ``[B]``; without a gradient, unless that is known already."""
        if self.known is not None:
            return self.known[0]
        return self._scores[0 if self.clients.shards.weights is None else 2].to(self.params.dtype)

    @property
    def mean_square_loss(self) -> torch.Tensor:
        """The mean of the squared losses of a client's examples, float64 ``[B]``."""
        return mean_square_loss(self.clients, self.params)

    @property
    def accuracy(self) -> torch.Tensor:
        """The share of its examples that each client sees classified correctly, float64 ``[B]``; needs class labels."""
        return self._scores[1]
