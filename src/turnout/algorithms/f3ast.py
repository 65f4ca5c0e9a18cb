"""F3AST: select and weight clients by their recent participation rate."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.selection import LeastServed
from turnout.pieces.weighting import BySmoothedRate, DivideByParticipants


@ALGORITHMS.register
def f3ast(
    local: Solver | None = None,
    *,
    cohort_size: Size = TEN,
    beta: float = 0.01,
    shares: tuple[float, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Select and weight clients by their share of the objective relative to their participation rate (F3AST).

    ``u = (1/B) sum_b (p_b / r_b) Delta_b`` over the B available clients with the largest ``p_b / r_b``. Here u is the
    direction of the server's step, Delta_b is the update of client b, p_b is its share of the objective, and r_b is an
    exponential average of its participation, which begins at 1/N.

    The recipe follows the authors' code, including its division by the size of the cohort. When r has settled, u is 1/B
    times as long as the mean update; `server_lr` can compensate for it. In their code r may also begin at p, and rounds
    with fewer than K available clients include absent ones; here such cohorts are smaller.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number of clients in a round (K), selected by `LeastServed`.
        beta: smoothing factor of r, in (0, 1]. Larger values follow recent rounds more closely.
        shares: share p of each of the N clients in the objective, positive numbers that sum to 1. None means 1/N each.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> f3ast()
        Algorithm('f3ast': LeastServed() -> Sgd() -> BySmoothedRate() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and
    time-varying communication constraints", IEEE JSTSP 2023.
    """
    pieces = (LeastServed(cohort_size, beta, shares), BySmoothedRate(beta, shares), DivideByParticipants())
    return compose(local or Sgd(), *pieces, server_lr=server_lr, also=also, name="f3ast")
