"""F3AST: cohorts and weights by how often each client has taken part lately."""

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
    """F3AST: ``u = (1/B) sum_b (p_b / r_b) Delta_b``, of those available clients whose ``p_b / r_b`` is largest.

    r is a client's rate of taking part, smoothed, and begins at 1/N. Written after the authors' code, its division by the
    size of the cohort included: when r has settled, u is 1/B times as long as the mean of updates, for which ``server_lr``
    makes up. There r may also begin at p, and a round in which fewer than K are there asks clients who are away; here it
    takes those who are there.

    Args:
        cohort_size: clients in a round (K), by `LeastServed`.
        beta: how much of r the present round is, in (0, 1].
        shares: p, what each client counts in the objective; None is 1/N each.

    Example:
        >>> f3ast()
        Algorithm('f3ast': LeastServed() -> Sgd() -> BySmoothedRate() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and
    time-varying communication constraints", IEEE JSTSP 2023.
    """
    pieces = (LeastServed(cohort_size, beta, shares), BySmoothedRate(beta, shares), DivideByParticipants())
    return compose(local or Sgd(), *pieces, ServerSgd(server_lr), also=also, name="f3ast")
