"""Power-of-choice: select the clients with the highest loss among random candidates."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.selection.power_of_choice import PowerOfChoice, RecentLoss
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def power_of_choice(
    local: Solver | None = None,
    *,
    cohort_size: Size = TEN,
    candidates: int = 20,
    shares: tuple[float, ...] | None = None,
    recent: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Select the m clients with the highest loss among d random candidates, and average their updates (power-of-choice).

    Updates are averaged with equal weights.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number of clients in a round (m), from 1 to the number of clients.
        candidates: number of random candidates (d), at least m.
        shares: share of each of the N clients, to which its probability of being a candidate is proportional; positive
            numbers that sum to 1. None means 1/N each.
        recent: whether to use the loss of each client's last local steps (rpow-d, `RecentLoss`). False asks candidates
            for the loss of the present model (pow-d, `PowerOfChoice`).
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> power_of_choice()
        Algorithm('power_of_choice': PowerOfChoice() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning", AISTATS 2022
    (arXiv 2010.01243).
    """
    selection = (RecentLoss if recent else PowerOfChoice)(cohort_size, candidates, shares)
    pieces = (local or Sgd(), selection, DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, also=also, name="power_of_choice")
