"""FedNova: normalised averaging of unequal amounts of work."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideByLocalSteps


@ALGORITHMS.register
def fednova(
    local: Solver | None = None,
    *,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedNova: updates per local step, ``u = tau_eff sum_b p_b Delta_b / tau_b``, so that unequal work does not bias.

    Args:
        cohort_size: clients in a round (K), uniform without replacement.

    Example:
        >>> fednova()
        Algorithm('fednova': Uniform() -> Sgd() -> ByExamples() -> DivideByLocalSteps() -> WeightedSum() -> ServerSgd())

    Reference: Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated optimization",
    NeurIPS 2020.
    """
    pieces = (ByExamples(), DivideByLocalSteps(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="fednova")
