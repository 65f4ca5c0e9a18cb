"""Federated averaging whose server steps as Adagrad does."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.adagrad import ServerAdagrad
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedadagrad(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 0.1,
    beta1: float = 0.0,
    tau: float = 1e-3,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedAdagrad: federated averaging whose server steps as Adagrad does.

    Args:
        server_lr, beta1, tau: of the server's step, see `ServerAdagrad`.

    Example:
        >>> fedadagrad()
        Algorithm('fedadagrad': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerAdagrad())

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """
    server = ServerAdagrad(server_lr, beta1, tau)
    return compose(local or Sgd(), ByExamples(), DivideBySum(), server, also=also, name="fedadagrad")
