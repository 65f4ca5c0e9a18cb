"""Federated averaging with momentum at the server."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.server_optimizer.momentum import ServerMomentum
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedavgm(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 0.3,
    beta: float = 0.9,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates weighted by the number of examples, and take steps with momentum at the server (FedAvgM).

    ``v <- beta v + u``, then ``x <- x + eta v``, where u is the average, v is the momentum and x is the model.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round. An update moves the model by
            ``eta / (1 - beta)`` times its length in total.
        beta: decay of the momentum, in [0, 1).
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedavgm()
        Algorithm('fedavgm': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerMomentum())

    Reference: Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019.
    """
    pieces = (local or Sgd(), ByExamples(), DivideBySum(), ServerMomentum(server_lr, beta))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="fedavgm")
