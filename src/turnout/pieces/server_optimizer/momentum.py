"""The server's step with momentum: FedAvgM."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import decay
from turnout.core.schedule import Schedule, check_step_size, step_size_at
from turnout.core.types import Federation, State
from turnout.pieces.base import Server, WithState


@dataclass(frozen=True)
class ServerMomentum(Server, name="momentum"):
    """Step with momentum, as FedAvgM does: ``v <- beta v + u``, then ``x <- x + eta v``; v begins at 0.

    A round without a usable report leaves v as it is. In all, an update moves the model by ``eta / (1 - beta)`` times its
    length: 10 times with eta = 1 and beta = 0.9, where a few clients with minibatches of their own overshoot, 3 times with
    the defaults.

    Args:
        lr: the server's step size (eta), or a `Schedule` of it by round.
        beta: how much of v stays from one step to the next, in [0, 1).

    State: ``v [P]``.

    Raises:
        ConfigurationError: for numbers out of range.

    Example:
        >>> from turnout.pieces.base.trial import step
        >>> step(ServerMomentum(lr=1.0, beta=0.5), [1.0], [0.0], [0.0])
        [[1.0], [1.5], [1.75]]

    Reference: Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019, section 4.3.
    """

    replaces_state = True

    lr: float | Schedule = 0.3
    beta: float = 0.9

    def __post_init__(self) -> None:
        check_step_size("lr", self.lr)
        decay("beta", self.beta)

    def init(self, federation: Federation) -> State:
        """Return v = 0."""
        return {"v": torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)}

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Step along the momentum."""
        v = direction.add(state["v"], alpha=self.beta)
        return params.add(v, alpha=step_size_at(self.lr, version)), {"v": v}
