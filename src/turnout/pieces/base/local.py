"""Base classes of local rules, corrections of their gradients, and measurements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family
from turnout.core.types import Lanes, Report, State, Task
from turnout.engine.cohort import Clients, Start
from turnout.engine.objective import Objective
from turnout.pieces.base.piece import MemoryShapes, Piece

LOCAL_PARTS = Family("local part", "local", ("turnout.pieces.local",))
"""Solvers, corrections of the gradient, and measurements."""


class Local(Piece, ABC):
    """Train on a task; an algorithm has exactly one local rule."""

    slot: ClassVar[str] = "local"
    family = LOCAL_PARTS

    gives: ClassVar[tuple[str, ...]] = ()
    """Names that it adds to ``report.seen``."""

    of_one_minibatch: bool = False
    """True if the direction of a step is the gradient on one minibatch, before it is corrected."""

    refuses_batch_norm: ClassVar[str | None] = None
    """Why running statistics of BatchNorm layers mean nothing with this rule; None where they do."""

    @property
    def refuses_bf16(self) -> str | None:
        """Why gradients in bfloat16 are of no use to this rule; None where they are."""
        return None

    @abstractmethod
    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Train B clients, starting from the task's parameters, and report. Changes `memory` (rows ``[B, ...]``)."""

    @property
    def varies(self) -> bool:
        """True if the number of a client's local steps depends on the version it is asked with."""
        return False

    @property
    def steps_by_examples(self) -> bool:
        """True if the number of a client's local steps, and so its time, follows from how many examples it has."""
        return False

    @property
    def plain(self) -> dict[str, Any] | None:
        """The rule in plain values, for clients in other languages; None where it is not plain minibatch SGD."""
        return None

    @property
    def deadline(self) -> float | None:
        """Seconds that a round lasts by this rule; None where it lasts as long as the slowest of its cohort."""
        return None

    def num_steps(self, task: Task, clients: Clients) -> np.ndarray:
        """How many local steps B clients take with a task, int64 ``[B]``; 1 where a rule does not say."""
        return np.ones(len(clients), dtype=np.int64)

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return what each client remembers: shape and type by name, zero at first.

        Args:
            num_params: of what it trains, personal ones included.
            dtype: of these.
        """
        return {}

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names in `memory` of what moves only with reports that count."""
        return ()

    @property
    def adapts(self) -> bool:
        """True if a step depends on the gradients of earlier ones, as with momentum, so that they do not count alike."""
        return False

    @property
    def drifts(self) -> bool:
        """True if parameters move whose gradients in a round are zero, as by a weight decay that is no part of gradients."""
        return False

    @property
    def normalises(self) -> bool:
        """True if the length of a step does not depend on that of its gradient, as Adam's."""
        return False

    def alone(self, steps: int) -> Local:
        """Return the rule by which a client trains a model of its own for a number of steps, without memory."""
        raise ConfigurationError(f"{type(self).__name__} has no rule for a model of a client's own: use Sgd")

    def tuning(self, steps: int) -> Local:
        """Return the rule by which a client fine-tunes the received model on its data in a number of steps."""
        return self.alone(steps)


class Correction(Piece, ABC):
    """Changes the gradient of every local step; chained in the order they are written.

    One that depends on where a client is and where it began defines `correct` alone. One that needs more of a client, or of
    the round, defines `begin`, which returns a correction for the clients at work. If that is a frozen dataclass whose values
    that differ from round to round or from step to step are tensors, which `correct` may change in place, then its steps
    are traced once and replayed without Python. Those of any other one are not.
    """

    slot: ClassVar[str] = "local"
    family = LOCAL_PARTS

    keeps: ClassVar[tuple[str, ...]] = ()
    """Names of vectors ``[P]``, zero at first, that every client remembers. The server knows the mean over all N clients of
    each, at any time, and broadcasts it in ``task.shared``."""

    @property
    def renews_every(self) -> int:
        """The number of server steps for which the broadcast means stay the same; 1 broadcasts the present ones."""
        return 1

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return what each client remembers beside: shape and type by name, zero at first. It never leaves the client."""
        return {}

    of_objective: ClassVar[bool] = True
    """True if it belongs to what a client minimises, and not only to the way there."""

    hides_training: ClassVar[str | None] = None
    """Why measurements of training (`Measurement.of_training`) mean nothing beside it; None where they do."""

    of_minibatch: ClassVar[bool] = False
    """True if it is a further term of the loss on each minibatch: what `begin` returns has a `slope`. A step has to be of one
    minibatch then, and measurements of training are refused, because they lack the term."""

    def slope(
        self, objective: Objective, params: torch.Tensor, x: torch.Tensor, mask: torch.Tensor | None, key: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of its term of the loss, ``[B, P]``, which is added before anything is corrected.

        Args:
            objective: the model and the loss.
            params, x, mask, key: as in `Objective.gradient`.
        """
        raise NotImplementedError(f"{type(self).__name__} declares of_minibatch: it has to define slope()")

    @property
    def asks_everyone(self) -> bool:
        """True if all N clients are asked, before the first round, for what it keeps."""
        return False

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction for the local steps of these clients in this round, rows in the order of the lanes."""
        return self

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the direction to descend: `gradient` at `params`, of lanes that started at `start`, all ``[B, P]``.

        By default it is the gradient itself, for corrections that act by `slope` or through what `begin` returns.
        """
        return gradient

    def changes(self, delta: torch.Tensor) -> State:
        """Return by how much the vectors in `keeps` change after the local steps, ``[B, P]`` by name, in the lanes' order.

        Args:
            delta: parameters after the last local step minus parameters before the first, ``[B, P]``, in the lanes' order;
                with a personal part, its columns come last.
        """
        return {}

    def remembered(self, delta: torch.Tensor) -> State:
        """Return the rows of `memory` after the local steps, ``[B, ...]`` by name, in the lanes' order.

        Args:
            delta: as in `changes`.
        """
        return {}

    def sent(self, delta: torch.Tensor) -> torch.Tensor:
        """Return what is reported in place of how far clients came, ``[B, P]``; `delta` as in `changes`."""
        return delta

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Move what clients remember by the updates that were sent, after all guards.

        Args:
            memory: rows ``[B, ...]`` by name, to be changed.
            sent: the reports as they leave.
            good: which of them the server will not drop, bool ``[B, 1]``.
        """


class Measurement(Piece, ABC):
    """Report something beside the update; can be added to any local rule."""

    slot: ClassVar[str] = "local"
    family = LOCAL_PARTS

    gives: ClassVar[tuple[str, ...]]
    """What it adds to ``report.seen``, by name."""

    of_training: ClassVar[bool] = False
    """True if it is about the result of training, and not only about the received model."""

    of_requirement: ClassVar[bool] = False
    """True if it compares the model with what clients require (`Population.requirement`)."""

    @abstractmethod
    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return what it `gives`, ``[B]`` or ``[B, P]``.

        Args:
            start: the clients at the model they received.
            delta: their updates, ``[B, P]``; None unless it is `of_training`.
        """
