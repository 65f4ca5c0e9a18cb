"""The server's steps with momentum: FedAvgM, and Nesterov momentum (DiLoCo), delayed for asynchronous training."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Server, WithState
from turnout.core.checks import refuse
from turnout.core.ranges import Count, Decay
from turnout.core.schedule import StepSize, step_size_at
from turnout.core.types import Federation, State


@dataclass(frozen=True)
class ServerMomentum(Server, name="momentum"):
    """Take a step with momentum along the aggregated update (FedAvgM).

    ``v <- beta v + u``, then ``x <- x + eta v``, where x is the model, u is the direction, i.e. the aggregated update,
    and v begins at 0. A round without a usable report leaves v unchanged.

    Over time an update moves the model by ``eta / (1 - beta)`` times its length: 3 times with the defaults. With eta =
    1 and beta = 0.9 it would be 10 times, which overshoots if few clients take part.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta: decay of v, in [0, 1). Larger values average over more rounds.

    State: ``v [P]``, of the model's type.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerMomentum(lr=1.0, beta=0.5), [1.0], [0.0], [0.0])
        [[1.0], [1.5], [1.75]]

    Reference: Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019, section 4.3.
    """

    client_rows = ()

    lr: StepSize = 0.3
    beta: Decay = 0.9

    def init(self, federation: Federation) -> State:
        """Return v = 0."""
        return {"v": torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)}

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model after a step along the momentum, and the state."""
        v = direction.add(state["v"], alpha=self.beta)
        return params.add(v, alpha=step_size_at(self.lr, version)), {"v": v}


@dataclass(frozen=True)
class ServerNesterov(Server, name="nesterov"):
    """Take a step with Nesterov momentum along the aggregated update (DiLoCo's outer optimizer).

    ``v <- beta v + u``, then ``x <- x + eta (u + beta v)``, where x is the model, u is the direction, i.e. the
    aggregated update, and v begins at 0. With -u as the gradient it is `torch.optim.SGD` with ``nesterov=True``. The
    defaults of eta and beta are those of DiLoCo. A round without a usable report leaves v unchanged.

    In asynchronous training, momentum accumulates directions that are stale already. With `every` N > 1 it is delayed
    (delayed Nesterov, Algorithm 3 of Liu et al.): every step uses its own direction at once, and every N-th step
    updates the momentum with the mean direction of N steps::

        U <- U + u
        x <- x + eta (u / N + share beta v)                                                  in N - 1 of N steps
        v <- beta v + U / N,  U <- 0,  x <- x + eta (u / N + (1 - (N - 1) share) beta v)     in every N-th

    So N steps add up to one step along their mean direction.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta: decay of v, in [0, 1). Larger values average over more steps.
        every: number N of server steps for one update of the momentum, >= 1. If each report is a step, use the number
            of clients that work at a time. 1 is plain Nesterov momentum.
        share: share of the momentum in each of the other N - 1 steps, in [0, 1/N]. 0 follows the paper.

    State: ``v [P]``, of the model's type; with `every` > 1 also ``total [P]`` (U) and, on the host, ``steps []``,
    int64.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        Four steps along ones with N = 2 move the model as far as two steps with N = 1:

        >>> from turnout.core.types import Federation
        >>> def after(server, steps):
        ...     x, state = torch.zeros(1), server.init(Federation(1, 1))
        ...     for version in range(steps):
        ...         x, state = server.apply(x, torch.ones(1), version, state)
        ...     return round(float(x), 5)
        >>> after(ServerNesterov(lr=1.0), 2), after(ServerNesterov(lr=1.0, every=2), 4)
        (4.61, 4.61)

    References: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023; Liu et al.,
    "Asynchronous local-SGD training for language modeling", 2024.
    """

    client_rows = ()

    lr: StepSize = 0.7
    beta: Decay = 0.9
    every: Count = 1
    share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 / self.every:
            raise refuse("share", given=self.share, needed=f"a number from 0 to 1/every = {1 / self.every:.4g}")

    def init(self, federation: Federation) -> State:
        """Return zeros."""
        zero = torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)
        return {"v": zero} if self.every == 1 else {"v": zero, "total": zero.clone(), "steps": torch.tensor(0)}

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model after a step along the direction, and along the momentum when it is due, and the state."""
        lr = step_size_at(self.lr, version)
        if self.every == 1:
            v = direction.add(state["v"], alpha=self.beta)
            return params.add(direction.add(v, alpha=self.beta), alpha=lr), {"v": v}
        v, total, steps = state["v"], state["total"] + direction, state["steps"] + 1
        share = self.share
        if due := int(steps) == self.every:
            v, share = (total / self.every).add(v, alpha=self.beta), 1 - (self.every - 1) * self.share
            total, steps = torch.zeros_like(total), torch.zeros_like(steps)
        step = (direction / self.every).add(v, alpha=self.beta * share) if due or share else direction / self.every
        return params.add(step, alpha=lr), {"v": v, "total": total, "steps": steps}
