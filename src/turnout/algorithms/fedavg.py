"""Federated averaging."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedavg(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the updates of the participants, weighted by their number of examples (FedAvg).

    ``u = sum_b n_b Delta_b / sum_b n_b``, where u is the direction of the server's step, Delta_b is the update of
    participant b, and n_b is its number of training examples.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedavg()
        Algorithm('fedavg': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerSgd())

    Reference: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
    2017.
    """
    pieces = (local or Sgd(), ByExamples(), DivideBySum())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedavg")
