"""Correct local steps by control variates, toward the mean gradient of all clients (SCAFFOLD, Amplified SCAFFOLD)."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional as F

from turnout.base import Correction, KeepingCorrection, MemoryShapes, Outcome
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.ranges import Count
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients

Option = Literal["I", "II"]
Initial = Literal["zeros", "gradients"]


@dataclass(frozen=True)
class Scaffold(KeepingCorrection, name="scaffold"):
    """Correct every local gradient by control variates, toward the mean gradient of all clients (SCAFFOLD).

    A local step descends ``g(y) - c_k + c``, where g(y) is the minibatch gradient, c_k the control variate of client k,
    which tracks the client's gradient, and c the mean of all c_k, which the server maintains. Use it against client
    drift on heterogeneous data. At the end of a round, clients that took part update theirs (equation 4)::

        I:   c_k <- grad F_k(w^t)            over all examples of the client, at the received model w^t
        II:  c_k <- (1/K) sum_j g_k(y_j)     over the minibatches of its K local steps

    and the server updates ``c <- c + (1/N) sum_k (c_k(after) - c_k(before))``, where N is the number of all clients.

    The paper writes option II as ``c_k - c + (w^t - y_K) / (K lr)``, which is the same for plain SGD. The running mean
    used here needs no step size, so it also holds with momentum and schedules, and it loses no digits to a division. A
    client updates c_k by the change that it has sent, so ``c = mean_k c_k`` after every round for any participation.

    Only the shared part is corrected. With a personal part, this is Scaffold-P (Algorithm 2, lines 6, 7, 10 and 13).
    Corrections before it in the chain, such as a proximal term, are a part of the gradients that c_k tracks.

    Args:
        option: ``"I"`` or ``"II"``.
        initial: control variates before the first round: ``"zeros"`` (SCAFFOLD), or ``"gradients"``, the mean gradient
            of K minibatches at the first model, for which all N clients are asked once (Scaffold-P).

    Raises:
        ConfigurationError: if an option is unknown.

    Example:
        >>> import turnout as to
        >>> to.compose(Scaffold(), to.Sgd(lr=0.1)).corrections
        (Scaffold(option='II', initial='zeros'),)
        >>> Scaffold(initial='gradients').asks_everyone
        True

    References: Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020; Chen
    et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """

    keeps = ("control",)

    option: Option = "II"
    initial: Initial = "zeros"

    @property
    def asks_everyone(self) -> bool:
        """True if control variates are initialized by gradients."""
        return self.initial == "gradients"

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the control variates of these clients."""
        control, mean = lanes.of(to_device(memory["control"], task.params.device)), task.shared["control"]
        mean = lanes.of(mean) if mean.dim() > 1 else mean
        drift = F.pad(mean - control, (0, task.params.shape[-1] - control.shape[1]))
        if self.option == "II" or task.phase == "prepare":
            return _MeanGradient(control, drift, torch.zeros_like(control), control.new_zeros((len(control), 1)))
        assert clients.start is not None
        return _StartGradient(control, drift, lanes.of(clients.start.gradient)[:, : control.shape[1]])


@dataclass(frozen=True)
class _StartGradient(Correction):
    """`Scaffold` with option I in one round.

    Args:
        control: c_k of the shared parameters, ``[B, P]``.
        drift: ``c - c_k``, padded by zeros for personal parameters, ``[B, P']``.
        now: the next c_k, ``[B, P]``.
    """

    control: torch.Tensor
    drift: torch.Tensor
    now: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return ``g - c_k + c``."""
        return gradient + self.drift[: len(gradient)]

    def outcome(self, delta: torch.Tensor) -> Outcome:
        """Return the change of c_k in this round, ``[B, P]``."""
        return Outcome({"control": self.now - self.control})


@dataclass(frozen=True)
class SummedGradients(Correction, ABC):
    """Base class of corrections by control variates that sum the gradients of a round.

    Args:
        control: c_k of the shared parameters, ``[B, P]``.
        drift: ``c - c_k``, padded by zeros for personal parameters, ``[B, P']``.
        total: sum of the gradients so far, ``[B, P]``; changed in place.
        steps: number of steps so far, ``[B, 1]``; changed in place.
    """

    control: torch.Tensor
    drift: torch.Tensor
    total: torch.Tensor
    steps: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return ``g - c_k + c``, and add g to the sum of the round."""
        active = len(gradient)
        self.total[:active].add_(gradient[:, : self.total.shape[1]])
        self.steps[:active].add_(1)
        return gradient + self.drift[:active]


@dataclass(frozen=True)
class _MeanGradient(SummedGradients):
    """`Scaffold` with option II in one round."""

    def outcome(self, delta: torch.Tensor) -> Outcome:
        """Return the change of c_k in this round, ``[B, P]``; zero for a client without steps."""
        done = self.steps > 0
        return Outcome({"control": (self.total / self.steps - self.control).where(done, 0.0)})


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
