"""Base class of server steps whose size adapts to each parameter (FedAdagrad, FedAdam, FedYogi)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from turnout.core.checks import decay, positive, refuse
from turnout.core.schedule import Schedule, check_step_size, step_size_at
from turnout.core.types import Federation, State
from turnout.pieces.base import Server, WithState


@dataclass(frozen=True)
class Adaptive(Server):
    """Step by ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u`` (Algorithm 2).

    u is the direction, and m begins at 0, v at tau^2, the least that the paper's condition ``v_{-1} >= tau^2`` allows.
    There is no bias correction, as in the paper; its authors' code has Keras' optimisers, which correct that of Adam and
    begin v at 0. A round without a usable report leaves m and v as they are.

    Args:
        lr: the server's step size (eta), or a `Schedule` of it by round.
        beta1: how much of m stays from one step to the next, in [0, 1).
        tau: the degree of adaptivity: where ``sqrt(v)`` is far below tau, steps are those of momentum, ``eta / tau`` long.

    State: ``m [P]`` and ``v [P]``.

    Raises:
        ConfigurationError: for numbers out of range.

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """

    replaces_state = True

    lr: float | Schedule = 0.01
    beta1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check_step_size("lr", self.lr)
        decay("beta1", self.beta1)
        check_offset("tau", self.tau)

    @abstractmethod
    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return the next v ``[P]`` from the present one and ``u^2``."""

    def init(self, federation: Federation) -> State:
        """Return m = 0 and v = tau^2."""
        zero = torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)
        return {"m": zero, "v": torch.full_like(zero, self.tau**2)}

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Step along the momentum, each parameter by its own step size."""
        m = torch.lerp(direction, state["m"], self.beta1)
        v = self.second_moment(state["v"], direction.square())
        lr = step_size_at(self.lr, version)
        return params.addcdiv(m, v.sqrt().add_(self.tau), value=lr), {"m": m, "v": v}


def check_offset(name: str, value: float) -> None:
    """Refuse what is added to ``sqrt(v)`` if single precision does not hold its square."""
    positive(name, value)
    if not _LEAST <= value <= 1 / _LEAST:
        needed = f"a number from {_LEAST:.2g} to {1 / _LEAST:.2g}, whose square single precision holds"
        raise refuse(name, given=value, needed=needed)


_LEAST = 2.0**-63
