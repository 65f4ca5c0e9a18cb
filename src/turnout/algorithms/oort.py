"""Oort: choose clients by the utility of their data and their speed, and explore others."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces import selection
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.local.measurements import LossRms
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def oort(
    local: Solver | None = None,
    *,
    cohort_size: int = 10,
    exploration: float = 0.9,
    decay: float = 0.98,
    least: float = 0.2,
    durations: tuple[float, ...] | None = None,
    preferred: float = 10.0,
    penalty: float = 2.0,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Oort: the mean by examples over clients with a high utility. Other rules take the choice as ``also=(Oort(),)``.

    Args:
        cohort_size, exploration, decay, least, durations, preferred, penalty: of the choice, see `turnout.selection.Oort`.

    Example:
        >>> oort()
        Algorithm('oort': Oort() -> Sgd() -> LossRms() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerSgd())

    Reference: Lai et al., "Oort: efficient federated learning via guided participant selection", OSDI 2021 (arXiv
    2010.06081).
    """
    chosen = selection.Oort(
        cohort_size, exploration, decay, least, durations=durations, preferred=preferred, penalty=penalty
    )
    pieces = (chosen, LossRms(), ByExamples(), DivideBySum(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="oort")
