"""MIFA: average the last updates of all clients."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import Mifa
from turnout.pieces.weighting import DivideByClients


@ALGORITHMS.register
def mifa(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the last updates of all clients, absent ones included (MIFA).

    ``u = mean_N(Y)``, where u is the direction of the server's step, and Y_n is the last update of client n, this
    round's included, over all N clients. The server stores an update ``[P]`` for each client.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> mifa()
        Algorithm('mifa': AllAvailable() -> Sgd() -> DivideByClients() -> Mifa() -> ServerSgd())

    Reference: Gu et al., "Fast federated learning in the presence of arbitrary device unavailability", NeurIPS 2021.
    """
    pieces = (local or Sgd(), DivideByClients(), Mifa())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="mifa")
