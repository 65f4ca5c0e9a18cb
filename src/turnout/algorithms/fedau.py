"""FedAU: estimate aggregation weights from participation intervals.

It minimizes ``f(x) = (1/N) sum_n F_n(x)``, in which all N clients have equal weights, from the updates of participants.
So do the algorithms with which its paper compares it: `average_participating`, `average_all`, `known_statistics`,
`fedvarp` and `mifa`. They share local training and the step ``x <- x + eta u``, and differ in the direction u alone.
"""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import DivideByClients, Participation
from turnout.pieces.weighting.participation import Average


@ALGORITHMS.register
def fedau(
    local: Solver | None = None,
    *,
    cutoff: int | None = 50,
    average: Average = "mean",
    rate: float = 0.1,
    groups: tuple[int, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weight updates by estimates of the inverse participation rates, learned from participation intervals (FedAU).

    ``u = (1/N) sum_b omega_b Delta_b`` (Algorithms 1 and 2). Here u is the direction of the server's step, N is the
    number of clients, Delta_b is the update of participant b, and omega_b is the mean of its participation intervals
    (see `Participation`). Use it if participation rates are unknown and differ among clients. All clients then have
    nearly equal influence.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cutoff: largest length K of an interval, in rounds, >= 1; None sets no cutoff.
        average: ``"mean"`` of all intervals, or ``"exponential"`` average, which forgets old ones.
        rate: smoothing factor of the exponential average, in (0, 1]. Larger values follow recent intervals more
            closely.
        groups: group number (0, 1, ...) of each client whose members share their statistics; None makes each client its
            own group.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedau()
        Algorithm('fedau': AllAvailable() -> Sgd() -> Participation() -> DivideByClients() -> WeightedSum() ->
        ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024, section 5 and appendix C.
    """
    pieces = (local or Sgd(), Participation(cutoff, average, rate, groups), DivideByClients())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedau")
