"""Federated averaging with Yogi at the server."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.server_optimizer.adaptive import ServerYogi
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedyogi(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 0.01,
    beta1: float = 0.9,
    tau: float = 1e-3,
    beta2: float = 0.99,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates weighted by the number of examples, and take steps of Yogi at the server (FedYogi).

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of the first moment, in [0, 1).
        tau: degree of adaptivity, > 0; see `ServerYogi`.
        beta2: decay of the second moment, in [0, 1).
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedyogi()
        Algorithm('fedyogi': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerYogi())

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """
    pieces = (local or Sgd(), ByExamples(), DivideBySum(), ServerYogi(server_lr, beta1, tau, beta2))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="fedyogi")
