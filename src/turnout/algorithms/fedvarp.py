"""FedVARP: reduce the variance of partial participation by the last update of each client."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import FedVarp
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def fedvarp(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates, with the last update of each client as its control variate (FedVARP).

    ``u = mean_N(Y) + (1/B) sum_b (Delta_b - Y_b)``. Here u is the direction of the server's step, B is the number of
    participants, Delta_b is the update of participant b, Y_b is the update that it sent before, and mean_N(Y) is the
    mean of the last updates of all N clients. It reduces the variance of partial participation. The server stores an
    update ``[P]`` for each client.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedvarp()
        Algorithm('fedvarp': AllAvailable() -> Sgd() -> DivideByParticipants() -> FedVarp() -> ServerSgd())

    Reference: Jhunjhunwala et al., "FedVARP: tackling the variance due to partial client participation in federated
    learning", UAI 2022.
    """
    pieces = (local or Sgd(), DivideByParticipants(), FedVarp())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedvarp")
