"""Correct local steps by mean gradients of whole periods of rounds (Amplified SCAFFOLD)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from turnout.core.checks import count
from turnout.core.device import to_device
from turnout.core.types import Lanes, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Correction, MemoryShapes
from turnout.pieces.local.scaffold import Begun


@dataclass(frozen=True)
class PeriodicScaffold(Correction, name="periodic_scaffold"):
    """Descend ``g(y) - c_k + c``, where c_k and c stay as they are for a period of P rounds.

    At the end of a period::

        c_k <- the mean of all minibatch gradients that client k computed in the period, if it took part
        c   <- (1/N) sum_k c_k

    so that c is about all clients although few of them take part at a time. Both begin at zero. With P = 1 this is
    `Scaffold` with option II.

    A client sends by how much the mean that is to be its next c_k changes, in each round that it takes part in, and finds
    out by the number of the round that a period is over. So the server has c at the end of a period without asking anybody.

    Args:
        period: P, in rounds (server steps).

    Client memory: ``control`` (the next c_k), ``control_held`` (the present one), ``control_period`` and ``control_steps``
    (its last period, and its local steps in it).

    Written after the authors' code, whose cohorts are of one size and whose clients do equally many steps; where they do not,
    every minibatch of a client counts alike.

    Raises:
        ConfigurationError: for a period below 1.

    Example:
        >>> import turnout as to
        >>> to.compose(PeriodicScaffold(period=5)).renews
        {'control': 5}

    Reference: Crawshaw and Liu, "Federated learning under periodic client participation and heterogeneous data: a new
    communication-efficient algorithm and analysis", NeurIPS 2024.
    """

    keeps = ("control",)

    period: int = 10

    def __post_init__(self) -> None:
        count("period", self.period)

    @property
    def renews_every(self) -> int:
        """A period: the mean is broadcast as it was when the period began."""
        return self.period

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shapes of the present c_k, the period it is of, and the steps in it."""
        one = ((1,), torch.int64)
        return {"control_held": ((num_params,), dtype), "control_period": one, "control_steps": one}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the control variates of these clients, renewed where a period is new to a client."""

        def row(name: str) -> torch.Tensor:
            return lanes.of(to_device(memory[name], task.params.device))

        control, mean = row("control"), task.shared["control"]
        mean = lanes.of(mean) if mean.dim() > 1 else mean
        versions = torch.from_numpy(task.versions(len(memory["control"])) // self.period)[:, None]
        period = lanes.of(to_device(versions, control.device))
        new = period != row("control_period")
        held, before = control.where(new, row("control_held")), row("control_steps").masked_fill(new, 0)
        drift = F.pad(mean - held, (0, task.params.shape[-1] - control.shape[1]))
        return _InPeriod(
            control, drift, None, torch.zeros_like(control), control.new_zeros((len(control), 1)), held, period, before
        )


@dataclass(frozen=True)
class _InPeriod(Begun):
    """SCAFFOLD in one round of a period.

    Args:
        held: c_k of this period, ``[B, P]``; `control` is what it will be in the next one.
        period: the number of the period, int64 ``[B, 1]``.
        before: local steps in it before this round, int64 ``[B, 1]``.
    """

    held: torch.Tensor
    period: torch.Tensor
    before: torch.Tensor

    def changes(self, delta: torch.Tensor) -> State:
        """Return the next c_k after the round minus before; zero for a client that did no step."""
        done = self.steps > 0
        return {"control": ((self.total - self.steps * self.control) / (self.before + self.steps)).where(done, 0.0)}

    def remembered(self, delta: torch.Tensor) -> State:
        """Return what stays with the clients."""
        steps = self.before + self.steps.to(torch.int64)
        return {"control_held": self.held, "control_period": self.period, "control_steps": steps}
