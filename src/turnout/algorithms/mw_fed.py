"""MW-Fed: multiplicative weights for clients who are not content."""

from __future__ import annotations

from dataclasses import replace

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import AppealGap, Sgd, ShareOfWork, Solver
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideBySum, MultiplicativeWeights


@ALGORITHMS.register
def mw_fed(
    local: Solver | None = None,
    *,
    factor: float = 4.0,
    most: float | None = None,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """MW-Fed: clients whose requirement is not met count and work `factor` times as much from their next round on.

    The original has it do so in the same round, see `MultiplicativeWeights`.

    Args:
        factor: see `MultiplicativeWeights`.
        most: no client does more than this many times the work of `local`; None is no bound, in which case a client can be
            asked for N times as much.
        cohort_size: clients in a round, uniform without replacement.

    Example:
        >>> mw_fed()
        Algorithm('mw_fed': Uniform() -> Sgd(steps=ShareOfWork()) -> AppealGap() -> MultiplicativeWeights() ->
        DivideBySum() -> WeightedSum() -> ServerSgd())

    Reference: Blum et al., "One for one, or all for all: equilibria and optimality of collaboration in federated
    learning", ICML 2021.
    """
    rule = local or Sgd()
    work = {
        name: ShareOfWork(amount, most) for name in ("steps", "epochs") if (amount := getattr(rule, name)) is not None
    }
    pieces = (AppealGap(), MultiplicativeWeights(factor), DivideBySum(), ServerSgd(server_lr))
    return compose(replace(rule, **work), Uniform(cohort_size), *pieces, also=also, name="mw_fed")
