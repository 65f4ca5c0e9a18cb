"""Federated averaging with a server step whose size grows with the disagreement of updates."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.server_optimizer.sgd import FedExP
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedexp(
    local: Solver | None = None, *, epsilon: float = 1e-3, cohort_size: Size = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Average updates weighted by the number of examples, with larger server steps if they disagree (FedExP).

    Args:
        local: local training; None is `Sgd` with its defaults.
        epsilon: constant that bounds the server's step size, > 0; see `FedExP`.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedexp()
        Algorithm('fedexp': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> FedExP())

    Reference: Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023.
    """
    pieces = (local or Sgd(), ByExamples(), DivideBySum(), FedExP(epsilon))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="fedexp")
