"""Federated averaging with momentum at the server."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.momentum import ServerMomentum
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedavgm(
    local: Solver | None = None, *, server_lr: float | Schedule = 0.3, beta: float = 0.9, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FedAvgM: federated averaging whose server steps with momentum, ``v <- beta v + u``, ``x <- x + eta v``.

    Args:
        server_lr, beta: of the server's step, see `ServerMomentum`.

    Example:
        >>> fedavgm()
        Algorithm('fedavgm': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerMomentum())

    Reference: Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019.
    """
    server = ServerMomentum(server_lr, beta)
    return compose(local or Sgd(), ByExamples(), DivideBySum(), server, also=also, name="fedavgm")
