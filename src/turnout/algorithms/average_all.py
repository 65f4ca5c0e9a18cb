"""The mean over all clients, in which absent ones count as zero."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients


@ALGORITHMS.register
def average_all(
    local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Average over all clients, absent ones as zero: ``u = (1/N) sum_b Delta_b``. As biased as `average_participating`.

    Example:
        >>> average_all()
        Algorithm('average_all': AllAvailable() -> Sgd() -> DivideByClients() -> WeightedSum() -> ServerSgd())
    """
    return compose(local or Sgd(), DivideByClients(), ServerSgd(server_lr), also=also, name="average_all")
