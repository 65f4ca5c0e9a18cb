"""The server's step with amplified updates: a period of rounds is extrapolated by gamma - 1 times its progress."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count, positive
from turnout.core.types import Federation, State
from turnout.pieces.base import Server, WithState


@dataclass(frozen=True)
class Amplified(Server, name="amplified"):
    """``x <- x + u`` in every round, and at the end of every period of P rounds ``x <- x_0 + gamma (x - x_0)``.

    x_0 is the model that the period began with. A round, whose few participants may all be of one kind, takes a short step,
    and what all of a period's participants agree on makes a long one. A period ends on time whether or not somebody is there
    in its last round. With gamma = 1 it is `ServerSgd` with a step of 1.

    Args:
        period: P, in rounds (server steps).
        gamma: the amplification.

    State: ``moved [P]``, how far the model has gone in this period.

    Raises:
        ConfigurationError: for a period below 1, or a gamma that is not positive.

    Example:
        The end of a period of two rounds doubles what both have done:

        >>> from turnout.pieces.base.trial import step
        >>> step(Amplified(period=2, gamma=2.0), [1.0], [1.0], [1.0])
        [[1.0], [4.0], [5.0]]

    References: Wang and Ji, "A unified analysis of federated learning with arbitrary client participation", NeurIPS 2022
    (amplified FedAvg); Crawshaw and Liu, "Federated learning under periodic client participation and heterogeneous data: a
    new communication-efficient algorithm and analysis", NeurIPS 2024.
    """

    replaces_state = True

    period: int = 10
    gamma: float = 1.5

    def __post_init__(self) -> None:
        count("period", self.period)
        positive("gamma", self.gamma)

    def init(self, federation: Federation) -> State:
        """Return a period that has just begun."""
        return {"moved": torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)}

    def acts_alone(self, version: int) -> bool:
        """Return whether a period ends."""
        return (version + 1) % self.period == 0

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Step along the direction; at the end of a period go on along all of its steps."""
        moved = state["moved"] + direction
        if not self.acts_alone(version):
            return params + direction, {"moved": moved}
        return params + direction.add(moved, alpha=self.gamma - 1.0), {"moved": torch.zeros_like(moved)}
