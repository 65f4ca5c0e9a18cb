"""Oort: select clients by the utility of their data and by their speed, and explore new clients."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces import selection
from turnout.pieces.local.measurements import LossRms
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def oort(
    local: Solver | None = None,
    *,
    cohort_size: Size = TEN,
    exploration: float = 0.9,
    decay: float = 0.98,
    least: float = 0.2,
    durations: tuple[float, ...] | None = None,
    preferred: float = 10.0,
    penalty: float = 2.0,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Select clients by the utility of their data and by their speed, and average their updates (Oort).

    Updates are averaged with weights proportional to the number of examples. Other algorithms use the selection as
    ``also=(Oort(),)``; see `turnout.selection.Oort`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number of clients in a round (K).
        exploration: initial share of new clients in the cohort, in [0, 1].
        decay: factor on this share in every round, in [0, 1].
        least: smallest share, in [0, 1].
        durations: duration of a round of each client, in seconds, > 0. None ignores durations.
        preferred: initial preferred duration of a round, in seconds, > 0.
        penalty: exponent of the penalty on slow clients, >= 0.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> oort()
        Algorithm('oort': Oort() -> Sgd() -> LossRms() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerSgd())

    Reference: Lai et al., "Oort: efficient federated learning via guided participant selection", OSDI 2021 (arXiv
    2010.06081).
    """
    chosen = selection.Oort(
        cohort_size, exploration, decay, least, durations=durations, preferred=preferred, penalty=penalty
    )
    pieces = (local or Sgd(), chosen, LossRms(), ByExamples(), DivideBySum())
    return compose(*pieces, server_lr=server_lr, also=also, name="oort")
