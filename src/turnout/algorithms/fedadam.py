"""Federated averaging whose server steps as Adam does."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.adam import ServerAdam
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedadam(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 0.01,
    beta1: float = 0.9,
    tau: float = 1e-3,
    beta2: float = 0.99,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedAdam: federated averaging whose server steps as Adam does.

    Args:
        server_lr, beta1, tau, beta2: of the server's step, see `ServerAdam`.

    Example:
        >>> fedadam()
        Algorithm('fedadam': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerAdam())

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """
    server = ServerAdam(server_lr, beta1, tau, beta2)
    return compose(local or Sgd(), ByExamples(), DivideBySum(), server, also=also, name="fedadam")
