"""Weights from the true participation rates."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients, KnownRates


@ALGORITHMS.register
def known_statistics(
    local: Solver | None = None,
    *,
    rates: tuple[float, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weights from the true participation rates: ``u = (1/N) sum_b Delta_b / p_b``. Unbiased; the rates are rarely known.

    Example:
        >>> known_statistics()
        Algorithm('known_statistics': AllAvailable() -> Sgd() -> KnownRates() -> DivideByClients() -> WeightedSum() ->
        ServerSgd())
    """
    pieces = (KnownRates(rates), DivideByClients(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="known_statistics")
