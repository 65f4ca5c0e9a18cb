"""The clients of a cohort, and their losses and gradients at the received model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.core.kept import Kept
from turnout.core.random import fold, stream
from turnout.core.types import Task
from turnout.engine.examples import Examples
from turnout.engine.full_batch import full_gradient, mean_square_loss, weighted_scores


class Required(Protocol):
    """The requirements of clients (see `turnout.population.requirement.BoundRequirement`)."""

    @property
    def train(self) -> np.ndarray:
        """rho_k on the client's training examples, float64 ``[N]``."""
        ...

    def gap(self, loss: Any, accuracy: Any, required: Any) -> Any:
        """Return the amount by which the model falls short of `required`."""
        ...


class StepTimes(Protocol):
    """The speeds of clients (see `turnout.population.speed.durations.BoundSpeed`)."""

    @property
    def seconds_per_step(self) -> np.ndarray:
        """The mean computing time of one local step of each client, float64 ``[N]``."""
        ...

    def communication_quantile(self, q: float, bytes_up: int = 0, bytes_down: int = 0) -> np.ndarray:
        """Return the q-quantile of each client's time for download and upload together, float64 ``[N]``."""
        ...


@dataclass(frozen=True, eq=False)
class Clients(Examples):
    """The clients of one `client_step`, with their data, objective and circumstances.

    Attributes:
        start: losses and gradients at the received model; None if nothing needs them.
        requirement: requirements that the clients of `shards` have of a model; None if nothing needs them.
        speed: speeds of the federation's clients; None without a clock.
        message_bytes: sizes of a report and of a download in bytes; None before the first messages.
        ahead: plan of a task that was made before its clients begin it.
    """

    start: Start | None = None
    requirement: Required | None = None
    speed: StepTimes | None = None
    message_bytes: tuple[int, int] | None = None
    ahead: Kept[Any] = field(default_factory=Kept)

    def at(self, task: Task) -> tuple[Clients, Start]:
        """Return the clients with their `Start` at the model of a task, and this `Start`."""
        start = Start(task, self)
        return replace(self, start=start), start

    def keys(
        self, purpose: str, seed: int | np.ndarray, versions: np.ndarray, lanes: slice | np.ndarray = slice(None)
    ) -> torch.Tensor:
        """Return 64 random bits for each client, int64 ``[B]``, from (purpose, seed, version, client)."""
        bits = fold(stream(purpose, seed), versions, self.ids)
        return to_device(bits[lanes], self.objective.device)


class Start:
    """Losses, accuracies and gradients of B clients at the model of a task; each is computed when it is first read.

    Attributes:
        task: the task, with the received model.
        clients: the clients.
    """

    def __init__(self, task: Task, clients: Clients) -> None:
        self.task, self.clients = task, clients

    @property
    def params(self) -> torch.Tensor:
        """The received model, ``[P]`` or ``[B, P]``."""
        return self.task.params

    @cached_property
    def _loss_and_gradient(self) -> tuple[torch.Tensor, torch.Tensor]:
        return full_gradient(self.clients, self.params)

    @cached_property
    def _scores(self) -> torch.Tensor:
        return weighted_scores(self.clients, self.params)

    @property
    def known(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Loss ``[B]`` and gradient ``[B, P]`` if the gradient was read before; else None."""
        return self.__dict__.get("_loss_and_gradient")

    @property
    def gradient(self) -> torch.Tensor:
        """``grad F_k(w^t)`` over all of a client's examples, ``[B, P]``."""
        return self._loss_and_gradient[1]

    @property
    def loss(self) -> torch.Tensor:
        """``F_k(w^t)`` over all of a client's examples, ``[B]``.

        It takes a forward pass, unless the gradient was read before.
        """
        if self.known is not None:
            return self.known[0]
        return self._scores[0 if self.clients.shards.weights is None else 2].to(self.params.dtype)

    @property
    def mean_square_loss(self) -> torch.Tensor:
        """The mean of the squared losses of a client's examples, float64 ``[B]``."""
        return mean_square_loss(self.clients, self.params)

    @property
    def accuracy(self) -> torch.Tensor:
        """Share of each client's examples that the model classifies correctly, float64 ``[B]``; needs class labels."""
        return self._scores[1]
