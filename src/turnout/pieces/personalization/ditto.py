"""Train a personal model beside the shared one (Ditto)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.core.checks import ConfigurationError, not_negative
from turnout.core.types import Lanes, Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Correction, Local, Slots
from turnout.pieces.personalization.base import OnOwnPart, WholeModel


@dataclass(frozen=True)
class Ditto(WholeModel, name="ditto"):
    """Train a personal model v_k near the shared one: minimise ``F_k(v_k) + lambda/2 ||v_k - w||^2`` (Ditto).

    A client that takes part trains the shared model and reports its update. By the same local rule, on the same minibatches,
    it also descends::

        v_k <- v_k - lr (grad F_k(v_k) + lambda (v_k - w^t))

    v_k starts from the model's first parameters, never leaves its client, and is the model that the client uses. The report
    does not depend on it, so it can be trained after the report is sent: times and traffic are those of the shared model.
    Corrections that belong to a client's objective (`Prox`, `Scaffold`) are about the shared model alone.

    Args:
        proximal: lambda; 0 is a model that knows nothing of the others.
        adaptation_steps: local steps that clients who never trained may do, from the shared model and held near it, before
            they are judged; of several numbers, such as ``(1, 5, 20)``, each is judged by itself.

    Raises:
        ConfigurationError: for numbers out of range, and, of an algorithm, for a local rule whose state clients keep.

    Example:
        >>> import turnout as to
        >>> to.compose(Ditto(proximal=0.5), to.selection.Uniform(10)).personal
        Ditto(proximal=0.5, adaptation_steps=5)

    Reference: Li et al., "Ditto: fair and robust federated learning through personalization", ICML 2021.
    """

    proximal: float = 0.1
    adaptation_steps: int | tuple[int, ...] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("proximal", self.proximal)

    def fits(self, algorithm: Slots) -> None:
        """Refuse a solver state that clients keep, which cannot be that of two models."""
        if algorithm.local.remembers:
            raise ConfigurationError(
                "keep_state: with Ditto a client trains two models, each with moments of its own, and it keeps one state: "
                "write keep_state=False"
            )

    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the shared model, which is what clients train."""
        return params

    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor | None]:
        """Return the report unchanged: all of it is about the shared model."""
        return report, None

    def beside(
        self, local: Local, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]
    ) -> torch.Tensor:
        """Return the update of every client's own model, ``[B, P]``."""
        way = tuple(correction for correction in corrections if not correction.of_objective)
        rows = {name: value.clone() for name, value in memory.items() if name != "personal"}
        personal_task = replace(task, params=self.serving(task.params, memory))
        return local.train(personal_task, rows, clients, (*way, _Near(self.proximal, task.params))).updates.gathered()

    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client that never trained makes a model of its own from the shared one."""
        return OnOwnPart(local.tuning(steps), (_Near(self.proximal),))


@dataclass(frozen=True)
class _Near(Correction):
    """Add ``factor (params - centre)``; the centre is where a client started, unless it is given, ``[P]`` or ``[B, P]``."""

    factor: float
    centre: torch.Tensor | None = None

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the term with centres in the order of the lanes."""
        return self if self.centre is None or self.centre.dim() == 1 else replace(self, centre=lanes.of(self.centre))

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the objective with its proximal term."""
        centre = start if self.centre is None else self.centre
        return gradient + self.factor * (params - (centre if centre.dim() == 1 else centre[: len(params)]))
