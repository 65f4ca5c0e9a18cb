"""Base classes of solvers, corrections of their gradients, and measurements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from turnout.base.piece import ClientPiece, MemoryShapes, Piece
from turnout.core.checks import ConfigurationError
from turnout.core.lanes import Lanes
from turnout.core.registry import Family
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients, Start
from turnout.engine.objective import Objective

LOCAL_PARTS = Family("local part", "local", ("turnout.pieces.local",))
"""Registry of solvers, corrections of the gradient, and measurements."""


@dataclass(frozen=True)
class Traits:
    """Properties of the local steps of a rule. The defaults are those of one step whose gradients all count equally.

    Attributes:
        of_one_minibatch: whether the direction of a step, before corrections, is the gradient on one minibatch.
        varies: whether a client's number of local steps depends on the version of its task.
        steps_by_examples: whether a client's number of local steps, and so its time, depends on its number of examples.
        deadline: duration of a round in seconds; None if a round lasts as long as the slowest client of its cohort.
        remembers: names in client memory of tensors that change only if the server uses the report.
        adapts: whether a step depends on gradients of earlier steps, as with momentum, so that they count unequally.
        drifts: whether parameters can move while their gradients are zero in a round, e.g. by decoupled weight decay.
        normalizes: whether the length of a step does not depend on the length of its gradient, as in Adam.
        refuses_batch_norm: the reason why the rule cannot train running statistics of BatchNorm layers; None if it can.
        refuses_bf16: the reason why the rule cannot use gradients in bfloat16; None if it can.
    """

    of_one_minibatch: bool = False
    varies: bool = False
    steps_by_examples: bool = False
    deadline: float | None = None
    remembers: tuple[str, ...] = ()
    adapts: bool = False
    drifts: bool = False
    normalizes: bool = False
    refuses_batch_norm: str | None = None
    refuses_bf16: str | None = None


class Local(Piece, ABC):
    """Train clients on a task. An algorithm has exactly one local rule, usually a `Solver`."""

    slot: ClassVar[str] = "local"
    family = LOCAL_PARTS

    @property
    def traits(self) -> Traits:
        """Properties on which other pieces, the simulation and the deployment depend."""
        return Traits()

    @abstractmethod
    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Train B clients from the task's parameters and return their reports.

        Args:
            task: the task, with parameters ``[P]`` or ``[B, P]``.
            memory: memory of the clients, ``[B, ...]`` by name; changed in place.
            clients: the clients with their data.
            corrections: corrections of the gradient, in the order in which they apply.
        """

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shape and type of each tensor of client memory that it needs, by name; they are initially zero.

        Args:
            num_params: number of trained parameters, including personal ones.
            dtype: type of the parameters.
        """
        return {}

    def alone(self, steps: int) -> Local:
        """Return the rule by which a client trains its own model for a number of steps, without memory.

        Raises:
            ConfigurationError: if there is no such rule.
        """
        raise ConfigurationError(f"{type(self).__name__} has no rule for a model of a client's own: use Sgd")


class CountsSteps(ABC):
    """A local rule that knows the number of its steps before it trains; others take one."""

    @abstractmethod
    def num_steps(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the number of local steps of B clients with a task, int64 ``[B]``."""

    @abstractmethod
    def max_steps(self, num_examples: np.ndarray) -> np.ndarray | None:
        """Return the maximum number of local steps in any task, int64 ``[B]``; None if it is unknown.

        A report of more steps is refused, because weights may grow with their number.

        Args:
            num_examples: numbers of examples that B clients report, int64 ``[B]``, at most 2^40.
        """

    def plan_ahead(self, task: Task, memory: State, clients: Clients) -> None:  # noqa: B027  # optional
        """Plan a task before its clients begin it, and keep the plan in ``clients.ahead``; by default, nothing is planned."""


class FineTunes(ABC):
    """A local rule that fine-tunes the received model in another way than it trains a client's own model."""

    @abstractmethod
    def tuning(self, steps: int) -> Local:
        """Return the rule by which a client fine-tunes the received model on its data for a number of steps."""


@dataclass(frozen=True)
class Outcome:
    """Hold what a correction leaves after the local steps of a round, with rows in the order of the lanes.

    Attributes:
        changes: changes of the vectors of a `KeepingCorrection`, ``[B, P]`` by name.
        remembered: new tensors of `Correction.memory`, ``[B, ...]`` by name.
        sent: vectors that are reported in place of the updates, ``[B, P]``; None reports the updates. The last correction
            of a chain that has some determines the report.
    """

    changes: State = field(default_factory=dict)
    remembered: State = field(default_factory=dict)
    sent: torch.Tensor | None = None


class Correction(ClientPiece, ABC):
    """Change the gradient of every local step. Corrections are chained in the order in which they are written.

    A correction that depends only on the present and the initial parameters defines `correct`. One that needs client
    memory, or tensors of the task, defines `begin`, which returns a correction for the clients that train. Its steps
    are traced once and replayed without Python if it is a frozen dataclass and all values that change between rounds or
    steps are tensors, which `correct` may change in place. Otherwise every step runs in Python.
    """

    slot: ClassVar[str] = "local"
    family = LOCAL_PARTS

    of_objective: ClassVar[bool] = True
    """True if it is a part of the local objective, and not only of the optimization."""

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shape and type of tensors of client memory that never leave the client, by name.

        They are initially zero.
        """
        return {}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction for these clients' local steps in this round, with rows in the order of the lanes."""
        return self

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the direction to descend, ``[B, P]``; by default, the gradient.

        Args:
            gradient: gradient at `params`, after earlier corrections, ``[B, P]``.
            params: present parameters, ``[B, P]``.
            start: parameters before the first local step, ``[B, P]``.
        """
        return gradient

    def outcome(self, delta: torch.Tensor) -> Outcome:
        """Return what is left after the local steps; by default, nothing.

        Args:
            delta: parameters after the last local step minus parameters before the first, ``[B, P]``, in the order of
                the lanes; personal parameters are the last columns.
        """
        return Outcome()


class KeepingCorrection(Correction):
    """Base class of corrections that keep vectors at every client, of which the server maintains the mean.

    The correction that `begin` returns gives the changes of the vectors in its `outcome`.
    """

    keeps: ClassVar[tuple[str, ...]]
    """Names of vectors ``[P]``, initially zero, in the memory of every client.

    The server maintains the mean of each over all N clients, and broadcasts it in ``task.shared``.
    """

    @property
    def renews_every(self) -> int:
        """Number of server steps for which the broadcast means stay the same; 1 broadcasts the present means."""
        return 1

    @property
    def asks_everyone(self) -> bool:
        """True if all N clients are asked for the initial vectors before the first round."""
        return False


class LossTerm(Correction):
    """Base class of corrections that add a term to the loss on each minibatch.

    The correction that `begin` returns computes the gradient of the term by `slope`. Every local step must then use one
    minibatch. Measurements of training are refused, because they lack the term.
    """

    def slope(
        self, objective: Objective, params: torch.Tensor, x: torch.Tensor, mask: torch.Tensor | None, key: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of its term of the loss, ``[B, P]``, which is added before all corrections.

        Args:
            objective: model and loss.
            params, x, mask, key: as in `Objective.gradient`.
        """
        raise NotImplementedError(f"{type(self).__name__} is a LossTerm: it has to define slope()")


class Measurement(Piece, ABC):
    """Report a further quantity beside the update, in `gives`. Measurements can be added to any solver."""

    slot: ClassVar[str] = "local"
    family = LOCAL_PARTS

    @abstractmethod
    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the measurements in `gives`, ``[B]`` or ``[B, P]`` by name.

        Args:
            start: the clients at the received model.
            delta: updates of the clients, ``[B, P]``; None except in a measurement `OfTraining`.
            corrections: corrections that belong to the local objective, started for these clients.
        """


class OfTraining(Measurement):
    """A measurement of the result of training, and not only of the received model."""


class OfRequirement(Measurement):
    """A measurement that compares the model with the requirements of clients (`Population.requirement`)."""
