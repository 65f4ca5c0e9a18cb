"""Steps of the server along the direction: plain, amplified at the end of a period, and extrapolated (FedExP)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import AddsDirection, ScalesByReports, Server, Slots, StepsAlone, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Count, Positive
from turnout.core.schedule import Schedule, check_step_size, step_size_at
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.weighted_sum import WeightedSum


@dataclass(frozen=True)
class ServerSgd(Server, AddsDirection, name="sgd"):
    """Take a step of constant or scheduled size along the aggregated update.

    ``x_{t+1} = x_t + eta u``, where x_t is the model, u is the direction, i.e. the aggregated update, and eta is the
    step size. With eta = 1, weights that sum to 1 make the new model the weighted mean of the clients' models.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.

    Raises:
        ConfigurationError: if `lr` is not positive.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerSgd(lr=0.5), [1.0, -2.0])
        [[0.5, -1.0]]
    """

    lr: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_step_size("server_lr", self.lr)

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model after a step along the direction, and the state."""
        return params.add(direction, alpha=step_size_at(self.lr, version)), state


@dataclass(frozen=True)
class Amplified(Server, StepsAlone, name="amplified"):
    """Take a plain step in every round, and amplify the progress of each period of rounds (amplified FedAvg).

    ``x <- x + u`` in every round, and ``x <- x_0 + gamma (x - x_0)`` at the end of every period of P rounds. Here x is
    the model, u is the direction, i.e. the aggregated update, x_0 is the model at the start of the period, and gamma is
    the amplification.

    The participants of one round may be few and alike. So a round takes a short step, and a period, in which other
    clients take part as well, takes a long one in the direction on which all of its participants agree. A period ends
    on time, even without a report in its last round. With gamma = 1 it is `ServerSgd` with the step size 1.

    Args:
        period: length P of a period, in rounds (server steps), >= 1.
        gamma: amplification, > 0. Values above 1 extrapolate.

    State: ``moved [P]``, the progress of the model in this period.

    Raises:
        ConfigurationError: if `period` is below 1, or if `gamma` is not positive.

    Example:
        The end of a period of two rounds doubles its progress:

        >>> from turnout.base.trial import step
        >>> step(Amplified(period=2, gamma=2.0), [1.0], [1.0], [1.0])
        [[1.0], [4.0], [5.0]]

    References: Wang and Ji, "A unified analysis of federated learning with arbitrary client participation", NeurIPS
    2022 (amplified FedAvg); Crawshaw and Liu, "Federated learning under periodic client participation and heterogeneous
    data: a new communication-efficient algorithm and analysis", NeurIPS 2024.
    """

    client_rows = ()

    period: Count = 10
    gamma: Positive = 1.5

    def init(self, federation: Federation) -> State:
        """Return the state at the start of a period."""
        return {"moved": torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)}

    def acts_alone(self, version: int) -> bool:
        """Return whether a period ends."""
        return (version + 1) % self.period == 0

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model after a step along the direction, amplified at the end of a period, and the state."""
        moved = state["moved"] + direction
        if not self.acts_alone(version):
            return params + direction, {"moved": moved}
        return params + direction.add(moved, alpha=self.gamma - 1.0), {"moved": torch.zeros_like(moved)}


@dataclass(frozen=True)
class FedExP(Server, ScalesByReports, name="fedexp"):
    """Take a step whose size grows with the disagreement of the updates (FedExP).

    ``x <- x + eta u``, where ``eta = max(1, mean_b ||Delta_b||^2 / (2 (||mean_b Delta_b||^2 + epsilon)))``. Here x is
    the model, u is the direction, i.e. the aggregated update, and Delta_b is the update of report b.

    Both means have the weights of u, divided by the sum W of their absolute values, so that ``u = W mean_b Delta_b``
    keeps its size W. A subtracted update has a negative weight, which counts with its absolute value in the mean of
    squared norms. With equal weights that sum to 1, eta is that of the paper.

    Differences from the authors' code: it multiplies epsilon by the number of participants and decreases it from round
    to round, like local step sizes, and it evaluates the mean of the last two models. Here epsilon is that of the
    paper, and the model itself is evaluated.

    Args:
        epsilon: constant that bounds eta if the mean of the updates is nearly zero, > 0, of the order of
            ``||Delta||^2``. The authors use 0.001 for CIFAR and 0.1 for EMNIST.

    Raises:
        ConfigurationError: if `epsilon` is not positive, or if the aggregation is not a weighted sum.

    Example:
        The squared norms are 5 and 2, and their mean is 2.8 times the squared norm of the mean update, so eta is 1.4:

        >>> from turnout.base.trial import report
        >>> even = torch.tensor([0.5, 0.5], dtype=torch.float64)
        >>> one = report([[2.0, 1.0], [-1.0, 1.0]])
        >>> FedExP(epsilon=1e-9).scaled(torch.tensor([0.5, 1.0]), even, one)
        tensor([0.7000, 1.4000])

    Reference: Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023.
    """

    epsilon: Positive = 1e-3

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless the direction is a weighted sum of this round's updates."""
        if not isinstance(algorithm.aggregation, WeightedSum):
            raise ConfigurationError(
                "FedExP's step is the ratio of the mean of ||Delta||^2 to ||mean of Delta||^2 of the same updates, and "
                f"{type(algorithm.aggregation).__name__} has another direction than their mean: leave one out"
            )

    def scaled(self, direction: torch.Tensor, weights: Weights, report: Report) -> torch.Tensor:
        """Return ``eta u``, ``[P]``."""
        size = weights.abs()
        total = size.sum()
        spread = size @ report.updates.norms().square() / total
        length = (torch.linalg.vector_norm(direction, dtype=torch.float64) / total).square()
        eta = torch.where(total > 0, (0.5 * spread / (length + self.epsilon)).clamp(min=1.0), 1.0)
        return direction * eta.to(direction.dtype)

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model plus the direction, which `scaled` has multiplied by eta, and the state."""
        return params + direction, state
