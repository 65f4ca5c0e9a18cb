"""The mean over all clients, in which updates of absent clients are zero."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import DivideByClients


@ALGORITHMS.register
def average_all(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the updates over all clients, with zeros for absent clients (FedAU, baseline "average all").

    ``u = (1/N) sum_b Delta_b``, where Delta_b is the update of participant b, N is the number of all clients, and u is
    the direction of the server's step. Like `average_participating` it is biased toward clients that participate
    often, and its steps are smaller in rounds with fewer participants.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> average_all()
        Algorithm('average_all': AllAvailable() -> Sgd() -> DivideByClients() -> WeightedSum() -> ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """
    pieces = (local or Sgd(), DivideByClients())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="average_all")
