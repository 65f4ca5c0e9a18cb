"""F3AST: cohorts and weights by the recent participation of each client."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.selection import LeastServed
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import BySmoothedRate, DivideByParticipants


@ALGORITHMS.register
def f3ast(
    local: Solver | None = None,
    *,
    cohort_size: int = 10,
    beta: float = 0.01,
    shares: tuple[float, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """F3AST: ``u = (1/B) sum_b (p_b / r_b) Delta_b`` over the available clients with the largest ``p_b / r_b``.

    r is a client's smoothed rate of participation, and begins at 1/N. Written after the authors' code, including its division
    by the size of the cohort: when r has settled, u is 1/B times as long as the mean of updates, for which ``server_lr``
    compensates. Their r may also begin at p, and their rounds with fewer than K available clients include absent ones; here
    cohorts are smaller then.

    Args:
        cohort_size: clients in a round (K), by `LeastServed`.
        beta: weight of the present round in r, in (0, 1].
        shares: p, the clients' shares of the objective; None is 1/N each.

    Example:
        >>> f3ast()
        Algorithm('f3ast': LeastServed() -> Sgd() -> BySmoothedRate() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and
    time-varying communication constraints", IEEE JSTSP 2023.
    """
    pieces = (LeastServed(cohort_size, beta, shares), BySmoothedRate(beta, shares), DivideByParticipants())
    return compose(local or Sgd(), *pieces, ServerSgd(server_lr), also=also, name="f3ast")
