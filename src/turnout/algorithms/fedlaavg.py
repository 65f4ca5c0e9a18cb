"""FedLaAvg: average the last updates of all clients, and select those with the longest absence."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import Mifa
from turnout.pieces.selection import LongestAbsent
from turnout.pieces.weighting import DivideByClients


@ALGORITHMS.register
def fedlaavg(
    local: Solver | None = None,
    *,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the last updates of all clients, and select the clients with the longest absence (FedLaAvg).

    The last update of a client that never took part is zero. If all available clients take part it is `mifa`, from
    which it differs in its selection alone.

    Differences from the authors' code: there is no option to begin with rounds that only collect updates, and clients
    have equal weights, where the authors multiply the loss of client k by ``N n_k / n``, with its number of examples
    n_k and that of all clients n.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number of clients in a round (K), selected by `LongestAbsent`.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedlaavg()
        Algorithm('fedlaavg': LongestAbsent() -> Sgd() -> DivideByClients() -> Mifa() -> ServerSgd())

    Reference: Yan et al., "Federated optimization under intermittent client availability", INFORMS Journal on Computing
    2024.
    """
    pieces = (local or Sgd(), LongestAbsent(cohort_size), DivideByClients(), Mifa())
    return compose(*pieces, server_lr=server_lr, also=also, name="fedlaavg")
