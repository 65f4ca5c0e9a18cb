"""q-FFL: clients whom the model serves badly count more."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver, StartLoss
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByCurvature


@ALGORITHMS.register
def qffl(
    local: Solver | None = None,
    *,
    q: float = 1.0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """q-FFL by q-FedAvg: updates weigh as the q-th power of the loss, with a step that needs no tuning anew for each q.

    Args:
        q: 0 is the mean; 10 comes near to minimising the largest loss (AFL).
        cohort_size: clients in a round, uniform without replacement.

    Example:
        >>> qffl()
        Algorithm('qffl': Uniform() -> Sgd() -> StartLoss() -> DivideByCurvature() -> WeightedSum() -> ServerSgd())

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """
    rule = local or Sgd()
    pieces = (StartLoss(), DivideByCurvature(q, rule.lr), ServerSgd(server_lr))
    return compose(rule, Uniform(cohort_size), *pieces, also=also, name="qffl")
