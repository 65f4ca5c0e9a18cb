"""q-FFL: give more weight to clients with a high loss."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import StartLoss
from turnout.pieces.weighting import DivideByCurvature


@ALGORITHMS.register
def qffl(
    local: Solver | None = None,
    *,
    q: float = 1.0,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weight updates by a power of the client's loss, for a fairer distribution of accuracy (q-FFL by q-FedAvg).

    The step size adapts to q, so that it need not be tuned again for each q; see `DivideByCurvature`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        q: fairness exponent, >= 0; 0 is the mean, and 10 comes close to minimizing the largest loss (AFL).
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> qffl()
        Algorithm('qffl': Uniform() -> Sgd() -> StartLoss() -> DivideByCurvature() -> WeightedSum() -> ServerSgd())

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """
    rule = local or Sgd()
    pieces = (rule, StartLoss(), DivideByCurvature(q, rule.lr))
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="qffl")
