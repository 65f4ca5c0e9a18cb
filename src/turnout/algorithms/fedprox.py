"""FedProx: federated averaging with a proximal term."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Prox, Sgd, Solver
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideByParticipants, DivideBySum


@ALGORITHMS.register
def fedprox(
    local: Solver | None = None,
    *,
    mu: float = 0.01,
    weighted: bool = True,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedProx: local steps on ``F_k(w) + mu/2 ||w - w^t||^2``, then the mean of the cohort's models.

    Args:
        mu: of the proximal term; 0 is federated averaging of a uniform cohort.
        weighted: the mean counts clients by their examples (FedProx); False is the simple mean (FOLB's comparison).
        cohort_size: clients in a round (K), uniform without replacement.

    Example:
        >>> fedprox()
        Algorithm('fedprox': Uniform() -> Sgd() -> Prox() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerSgd())

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """
    weights = (ByExamples(), DivideBySum()) if weighted else (DivideByParticipants(),)
    pieces = (Prox(mu), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="fedprox")
