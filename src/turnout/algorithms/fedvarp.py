"""FedVARP: variance reduction by the last update of each client."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import FedVarp
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def fedvarp(
    local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FedVARP: ``u = mean_N(Y) + (1/B) sum_b (Delta_b - Y_b)``, Y the last update of each client.

    Example:
        >>> fedvarp()
        Algorithm('fedvarp': AllAvailable() -> Sgd() -> DivideByParticipants() -> FedVarp() -> ServerSgd())

    Reference: Jhunjhunwala et al., "FedVARP: tackling the variance due to partial client participation in federated
    learning", UAI 2022.
    """
    pieces = (DivideByParticipants(), FedVarp(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="fedvarp")
