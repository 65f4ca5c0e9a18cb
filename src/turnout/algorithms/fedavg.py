"""Federated averaging."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedavg(
    local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FedAvg: the mean of the participants' updates, weighted by their examples.

    Example:
        >>> fedavg()
        Algorithm('fedavg': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerSgd())

    Reference: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017.
    """
    return compose(local or Sgd(), ByExamples(), DivideBySum(), ServerSgd(server_lr), also=also, name="fedavg")
