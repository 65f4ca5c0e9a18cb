"""The server's step with momentum (FedAvgM)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Server, WithState
from turnout.core.ranges import Decay
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
