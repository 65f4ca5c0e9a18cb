"""The mean over the participants of a round."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def average_participating(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the updates of the participants with equal weights (FedAU, baseline "average participating").

    ``u = (1/B) sum_b Delta_b``, where Delta_b is the update of participant b, B is the number of participants, and u is
    the direction of the server's step. It is biased toward clients that participate often.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> average_participating()
        Algorithm('average_participating': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """
    pieces = (local or Sgd(), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="average_participating")
