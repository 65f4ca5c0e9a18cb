"""Correct local steps by control variates, toward the mean gradient of all clients (SCAFFOLD)."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional as F

from turnout.base import Correction, KeepingCorrection, Outcome
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
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
