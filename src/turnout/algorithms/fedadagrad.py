"""Federated averaging with Adagrad at the server."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.server_optimizer.adaptive import ServerAdagrad
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedadagrad(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 0.1,
    beta1: float = 0.0,
    tau: float = 1e-3,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates weighted by the number of examples, and take steps of Adagrad at the server (FedAdagrad).

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of the first moment, in [0, 1). The default 0, no momentum, is that of the paper's experiments.
        tau: degree of adaptivity, > 0; see `ServerAdagrad`.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedadagrad()
        Algorithm('fedadagrad': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerAdagrad())

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """
    pieces = (local or Sgd(), ByExamples(), DivideBySum(), ServerAdagrad(server_lr, beta1, tau))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="fedadagrad")
