"""MIFA: the mean of the last updates of all clients."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import Mifa
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients


@ALGORITHMS.register
def mifa(local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()) -> Algorithm:
    """MIFA: ``u = mean_N(Y)``, Y the last update of each client, this round's included.

    Example:
        >>> mifa()
        Algorithm('mifa': AllAvailable() -> Sgd() -> DivideByClients() -> Mifa() -> ServerSgd())

    Reference: Gu et al., "Fast federated learning in the presence of arbitrary device unavailability", NeurIPS 2021.
    """
    return compose(local or Sgd(), DivideByClients(), Mifa(), ServerSgd(server_lr), also=also, name="mifa")
