"""Ditto: a personal model beside the shared one."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.personalization.ditto import Ditto
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def ditto(
    local: Solver | None = None,
    *,
    proximal: float = 0.1,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Ditto: federated averaging with the plain mean, beside which everyone has a whole model, held near the shared one.

    Args:
        proximal: lambda, how near, see `Ditto`.

    Example:
        >>> ditto()
        Algorithm('ditto': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() -> Ditto())

    Reference: Li et al., "Ditto: fair and robust federated learning through personalization", ICML 2021.
    """
    pieces = (Ditto(proximal), DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="ditto")
