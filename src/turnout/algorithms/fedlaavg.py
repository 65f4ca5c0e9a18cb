"""FedLaAvg: MIFA with cohorts of the clients that have been absent the longest."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import Mifa
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.selection import LongestAbsent
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients


@ALGORITHMS.register
def fedlaavg(
    local: Solver | None = None,
    *,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedLaAvg: every step is the mean of the last updates of all N clients, zero for those that never sent one.

    Where all available clients take part it is `mifa`; it differs in its selection of cohorts. Written after the authors'
    code, without its option to begin with rounds that only collect updates, and with equal weights of clients, where the
    authors multiply each client's loss by N n_k / n.

    Args:
        cohort_size: clients in a round (K), by `LongestAbsent`.

    Example:
        >>> fedlaavg()
        Algorithm('fedlaavg': LongestAbsent() -> Sgd() -> DivideByClients() -> Mifa() -> ServerSgd())

    Reference: Yan et al., "Federated optimization under intermittent client availability", INFORMS Journal on Computing
    2024.
    """
    pieces = (LongestAbsent(cohort_size), DivideByClients(), Mifa(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="fedlaavg")
