"""Server optimizers with a step size for each parameter (FedAdagrad, FedAdam, FedYogi)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch

from turnout.base import Server, WithState
from turnout.core.checks import positive, refuse
from turnout.core.ranges import Decay
from turnout.core.schedule import Schedule, StepSize, step_size_at
from turnout.core.types import Federation, State

_LEAST = 2.0**-63


def check_offset(name: str, value: float) -> None:
    """Raise an error if a constant that is added to ``sqrt(v)`` has no square in single precision."""
    positive(name, value)
    if not _LEAST <= value <= 1 / _LEAST:
        needed = f"a number from {_LEAST:.2g} to {1 / _LEAST:.2g}, whose square single precision holds"
        raise refuse(name, given=value, needed=needed)


Offset = Annotated[float, check_offset]
"""A constant that is added to ``sqrt(v)``."""


@dataclass(frozen=True)
class Adaptive(Server):
    """Take a step along a momentum, with a step size that adapts to each parameter (FedOpt, Algorithm 2).

    ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u``, where x is the model, u is the
    direction, i.e. the aggregated update, and v estimates its second moment by the rule of the derived class. m begins
    at 0, and v at tau^2, the smallest value that the paper's condition ``v_{-1} >= tau^2`` allows.

    There is no bias correction, as in the paper. The authors' code uses the optimizers of Keras, whose Adam corrects
    the bias and whose v begins at 0. A round without a usable report leaves m and v unchanged.

    v remembers large directions: after a single one of c times the usual length, steps are up to c times too short, in
    FedAdam for about ``2 log(c) / (1 - beta2)`` rounds, in FedAdagrad and FedYogi for good. If clients may be dishonest,
    limit the norm of updates (between machines, ``serve --max-norm``), or use a robust aggregation.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1). Larger values average over more rounds.
        tau: degree of adaptivity, > 0. Where ``sqrt(v)`` is far below tau, steps are those of momentum with the step
            size ``eta / tau``.

    State: ``m [P]`` and ``v [P]``, of the model's type.

    Raises:
        ConfigurationError: if a number is out of range.

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """

    client_rows = ()
    trusts = ("max_norm", "takes short steps for long after a single large update")

    lr: StepSize = 0.01
    beta1: Decay = 0.9
    tau: Offset = 1e-3

    @abstractmethod
    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return the next v ``[P]``.

        Args:
            v: the present v, ``[P]``.
            square: the squared direction ``u^2``, ``[P]``.
        """

    def init(self, federation: Federation) -> State:
        """Return m = 0 and v = tau^2."""
        zero = torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)
        return {"m": zero, "v": torch.full_like(zero, self.tau**2)}

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model after a step along the momentum, and the state."""
        m = torch.lerp(direction, state["m"], self.beta1)
        v = self.second_moment(state["v"], direction.square())
        lr = step_size_at(self.lr, version)
        return params.addcdiv(m, v.sqrt().add_(self.tau), value=lr), {"m": m, "v": v}


@dataclass(frozen=True)
class ServerAdagrad(Adaptive, name="adagrad"):
    """Take a step of Adagrad along the aggregated update (FedAdagrad, Algorithm 2).

    The step is that of `Adaptive`: ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u`` and
    ``v <- v + u^2``, where u is the direction, i.e. the aggregated update. m begins at 0, and v at tau^2.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1). The default 0, no momentum, is that of the paper's experiments.
        tau: degree of adaptivity, > 0; see `Adaptive`.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerAdagrad(lr=0.1), [1.0], [1.0])
        [[0.0999], [0.1706]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    lr: float | Schedule = 0.1
    beta1: float = 0.0

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``v + u^2``."""
        return v + square


@dataclass(frozen=True)
class ServerAdam(Adaptive, name="adam"):
    """Take a step of Adam along the aggregated update (FedAdam, Algorithm 2).

    The step is that of `Adaptive`: ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u`` and
    ``v <- beta2 v + (1 - beta2) u^2``, where u is the direction, i.e. the aggregated update. m begins at 0, and v at
    tau^2. There is no bias correction.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1).
        tau: degree of adaptivity, > 0; see `Adaptive`.
        beta2: decay of v, in [0, 1). Larger values average over more rounds.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerAdam(lr=0.1), [1.0], [1.0])
        [[0.099], [0.2327]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    beta2: Decay = 0.99

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``beta2 v + (1 - beta2) u^2``."""
        return torch.lerp(square, v, self.beta2)


@dataclass(frozen=True)
class ServerYogi(Adaptive, name="yogi"):
    """Take a step of Yogi along the aggregated update (FedYogi, Algorithm 2).

    The step is that of `Adaptive`: ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u`` and
    ``v <- v - (1 - beta2) u^2 sign(v - u^2)``, where u is the direction, i.e. the aggregated update. m begins at 0, and
    v at tau^2.

    v falls by at most ``(1 - beta2) u^2`` in a step. So it falls more slowly than with `ServerAdam`, where it falls by
    a share of itself, if directions are small for a while.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1).
        tau: degree of adaptivity, > 0; see `Adaptive`.
        beta2: decay of v, in [0, 1). Larger values change v more slowly.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerYogi(lr=0.1), [1.0], [1.0])
        [[0.099], [0.2324]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    beta2: Decay = 0.99

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``v - (1 - beta2) u^2 sign(v - u^2)``."""
        return v.addcmul(square, torch.sign(v - square), value=self.beta2 - 1.0)
