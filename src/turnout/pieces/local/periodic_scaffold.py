"""Correct local steps by control variates that are constant over periods of rounds (Amplified SCAFFOLD)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from turnout.base import Correction, KeepingCorrection, MemoryShapes, Outcome
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.ranges import Count
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.local.scaffold import SummedGradients


@dataclass(frozen=True)
class PeriodicScaffold(KeepingCorrection, name="periodic_scaffold"):
    """Correct every local gradient by control variates that are renewed once per period (Amplified SCAFFOLD).

    A local step descends ``g(y) - c_k + c``, where g(y) is the minibatch gradient, c_k is the control variate of client
    k, and c is that of the server. Both are constant over a period of P rounds. At the end of a period::

        c_k <- the mean of all minibatch gradients that client k computed in the period, if it took part
        c   <- (1/N) sum_k c_k

    so that c covers all N clients, even if few of them take part at a time. Use it when participation is periodic. Both
    control variates start at zero. With P = 1 this is `Scaffold` with option II.

    A client sends the change of its next c_k in every round in which it takes part, and infers the end of a period from
    the number of the round. The server therefore knows c at the end of a period without asking any client.

    Args:
        period: P, in rounds (server steps), >= 1.

    Client memory: ``control`` (the next c_k), ``control_held`` (the present one), ``control_period`` and
    ``control_steps`` (the client's last period, and its local steps in it).

    This follows the authors' code, where all cohorts have one size and all clients do the same number of steps; where
    they do not, every minibatch of a client counts equally.

    Raises:
        ConfigurationError: if `period` is below 1.

    Example:
        >>> import turnout as to
        >>> to.compose(PeriodicScaffold(period=5)).renews
        {'control': 5}

    Reference: Crawshaw and Liu, "Federated learning under periodic client participation and heterogeneous data: a new
    communication-efficient algorithm and analysis", NeurIPS 2024.
    """

    keeps = ("control",)

    period: Count = 10

    @property
    def renews_every(self) -> int:
        """The period: the broadcast mean is the one at the beginning of the period."""
        return self.period

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shapes of the present c_k, of the number of its period and of the number of steps in it."""
        one = ((1,), torch.int64)
        return {"control_held": ((num_params,), dtype), "control_period": one, "control_steps": one}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the control variates of these clients, renewed where a client enters a period."""

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
            control, drift, torch.zeros_like(control), control.new_zeros((len(control), 1)), held, period, before
        )


@dataclass(frozen=True)
class _InPeriod(SummedGradients):
    """`PeriodicScaffold` in one round; `control` is the c_k of the next period.

    Args:
        held: c_k of this period, ``[B, P]``.
        period: number of the period, int64 ``[B, 1]``.
        before: local steps in the period before this round, int64 ``[B, 1]``.
    """

    held: torch.Tensor
    period: torch.Tensor
    before: torch.Tensor

    def outcome(self, delta: torch.Tensor) -> Outcome:
        """Return the change of the next c_k, zero for a client without steps, and what is remembered of the period."""
        change = ((self.total - self.steps * self.control) / (self.before + self.steps)).where(self.steps > 0, 0.0)
        steps = self.before + self.steps.to(torch.int64)
        remembered = {"control_held": self.held, "control_period": self.period, "control_steps": steps}
        return Outcome({"control": change}, remembered)
