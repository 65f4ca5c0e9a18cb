"""Train a personal model beside the shared one (Ditto)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.base import Correction, Local, Slots, TrainsBeside
from turnout.base.tuning import tuning_rule
from turnout.core.checks import ConfigurationError
from turnout.core.lanes import Lanes
from turnout.core.ranges import NotNegative
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.local import Prox
from turnout.pieces.personalization.base import OnOwnPart, WholeModel


@dataclass(frozen=True)
class Ditto(WholeModel, TrainsBeside, name="ditto"):
    """Train a personal model of each client close to the shared model (Ditto).

    Client k minimizes ``F_k(v_k) + lambda/2 ||v_k - w||^2`` over its personal model v_k, where F_k is its training loss
    and w the shared model. A client that participates trains the shared model as usual and reports its update. With the
    same local rule, on the same minibatches, it also trains v_k from its last value::

        v_k <- v_k - lr (grad F_k(v_k) + lambda (v_k - w^t))

    w^t is the shared model as received in round t and lr the local step size. v_k starts from the model's initial
    parameters, never leaves its client, and is the model that serves it. The report does not depend on v_k, which can
    therefore be trained after the report is sent: simulated durations and traffic are those of the shared model.
    Corrections of a client's objective (`Prox`, `Scaffold`) apply to the shared model only.

    Args:
        proximal: lambda, >= 0; with 0 a personal model is independent of the shared one.
        adaptation_steps: number of local steps, >= 1, by which a client that never trained (``unseen_clients``) fits a
            personal model before it is evaluated. The steps start from the shared model, with the same proximal term. A
            tuple of numbers, such as ``(1, 5, 20)``, evaluates clients after each of them.

    Raises:
        ConfigurationError: if a number is out of range, or a local rule keeps its optimizer state between rounds.

    Example:
        >>> import turnout as to
        >>> to.compose(Ditto(proximal=0.5), to.selection.Uniform(10)).personal
        Ditto(proximal=0.5, adaptation_steps=5)

    Reference: Li et al., "Ditto: fair and robust federated learning through personalization", ICML 2021.
    """

    proximal: NotNegative = 0.1
    adaptation_steps: int | tuple[int, ...] = 5

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for a local rule whose state clients keep: one state cannot belong to two models."""
        if algorithm.local.traits.remembers:
            raise ConfigurationError(
                "keep_state: with Ditto a client trains two models, each with its own moments, and it keeps one state: "
                "write keep_state=False"
            )

    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the shared model, which clients train."""
        return params

    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor | None]:
        """Return the report unchanged, because it contains only the shared model's update."""
        return report, None

    def beside(
        self, local: Local, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]
    ) -> torch.Tensor:
        """Return the update of each client's personal model, ``[B, P]``."""
        way = tuple(correction for correction in corrections if not correction.of_objective)
        rows = {name: value.clone() for name, value in memory.items() if name != "personal"}
        personal_task = replace(task, params=self.serving(task.params, memory))
        return local.train(personal_task, rows, clients, (*way, _Near(self.proximal, task.params))).updates.gathered()

    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client that never trained fits a personal model, starting from the shared one."""
        return OnOwnPart(tuning_rule(local, steps), (Prox(self.proximal),))


@dataclass(frozen=True)
class _Near(Correction):
    """Add the gradient ``factor (params - center)`` of a proximal term whose center is not the model that steps start from.

    Args:
        factor: lambda.
        center: the center, ``[P]`` or ``[B, P]``.
    """

    factor: float
    center: torch.Tensor

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with its centers in the order of the lanes."""
        return self if self.center.dim() == 1 else replace(self, center=lanes.of(self.center))

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the objective with its proximal term."""
        center = self.center if self.center.dim() == 1 else self.center[: len(params)]
        return gradient + self.factor * (params - center)
