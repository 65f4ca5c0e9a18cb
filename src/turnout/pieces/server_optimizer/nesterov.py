"""The server's step with Nesterov's momentum (DiLoCo), delayed where reports come late."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count, decay, refuse
from turnout.core.schedule import Schedule, check_step_size, step_size_at
from turnout.core.types import Federation, State
from turnout.pieces.base import Server, WithState


@dataclass(frozen=True)
class ServerNesterov(Server, name="nesterov"):
    """Step with Nesterov's momentum: ``v <- beta v + u``, then ``x <- x + eta (u + beta v)``; v begins at 0.

    With -u for the gradient it is `torch.optim.SGD` with ``nesterov=True``, DiLoCo's outer optimizer, whose eta and beta are
    the defaults. A round without a usable report leaves v as it is.

    Where reports come late, momentum adds up directions that are stale already. `every` N > 1 delays it (delayed Nesterov,
    Algorithm 3 of Liu et al.): every step takes its own direction at once, and every N-th has the momentum of all N::

        U <- U + u
        x <- x + eta (u / N + share beta v)                                in N - 1 of N steps
        v <- beta v + U / N,  U <- 0,  x <- x + eta (u / N + (1 - (N - 1) share) beta v)     in every N-th

    so that N steps add up to a single one of their mean direction.

    Args:
        lr: the server's step size (eta), or a `Schedule` of it by round.
        beta: how much of v stays, in [0, 1).
        every: N, server steps to a step of the momentum: the number of clients at work, where each report is a step.
        share: how much of the momentum each of the other steps takes, in [0, 1/N]; 0 is the paper's choice.

    State: ``v [P]``, and where `every` > 1 ``total [P]`` (U) and ``steps []``, on the host.

    Raises:
        ConfigurationError: for numbers out of range.

    Example:
        Four steps along ones with N = 2 go as far as two of `ServerNesterov` with a single report each:

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

    replaces_state = True

    lr: float | Schedule = 0.7
    beta: float = 0.9
    every: int = 1
    share: float = 0.0

    def __post_init__(self) -> None:
        check_step_size("lr", self.lr)
        decay("beta", self.beta)
        count("every", self.every)
        if not 0 <= self.share <= 1 / self.every:
            raise refuse("share", given=self.share, needed=f"a number from 0 to 1/every = {1 / self.every:.4g}")

    def init(self, federation: Federation) -> State:
        """Return zeros."""
        zero = torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)
        return {"v": zero} if self.every == 1 else {"v": zero, "total": zero.clone(), "steps": torch.tensor(0)}

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Step along the direction, and along the momentum when it is due."""
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
