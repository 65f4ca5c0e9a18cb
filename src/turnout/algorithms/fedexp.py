"""Federated averaging with a server step as long as the updates' disagreement allows."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.fedexp import FedExP
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedexp(local: Solver | None = None, *, epsilon: float = 1e-3, also: tuple[Piece, ...] = ()) -> Algorithm:
    """FedExP: federated averaging whose server step is extrapolated, the further the more updates disagree.

    Args:
        epsilon: of the server's step, see `FedExP`.

    Example:
        >>> fedexp()
        Algorithm('fedexp': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> FedExP())

    Reference: Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023.
    """
    server = FedExP(epsilon)
    return compose(local or Sgd(), ByExamples(), DivideBySum(), server, also=also, name="fedexp")
