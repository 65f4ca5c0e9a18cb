"""FedDyn: local objectives that are regularised so that their optima agree."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation.feddyn import FedDyn
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.local.dynamic import DynamicRegularizer
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def feddyn(
    local: Solver | None = None, *, alpha: float = 0.1, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FedDyn: local steps descend ``g - lambda_k + alpha (y - w)``, and the mean of models is shifted.

    Every message is as large as FedAvg's; a client keeps a vector of its own, and the server one.

    Args:
        alpha: of the regulariser, see `DynamicRegularizer`.
        server_lr: 1 in the paper.

    Example:
        >>> feddyn()
        Algorithm('feddyn': AllAvailable() -> Sgd() -> DynamicRegularizer() -> DivideByParticipants() -> FedDyn() ->
        ServerSgd())

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021 (arXiv 2111.04263).
    """
    pieces = (DynamicRegularizer(alpha), FedDyn(), DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="feddyn")
