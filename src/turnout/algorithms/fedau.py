"""FedAU: weights learnt from participation intervals.

It minimises ``f(x) = (1/N) sum_n F_n(x)``, in which all clients have equal weights, from the updates of those that take
part. So do the algorithms that its paper compares it with: `average_participating`, `average_all`, `known_statistics`,
`fedvarp` and `mifa`. They share the local rule and the step ``x <- x + eta u``, and differ in u alone.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients, Participation


@ALGORITHMS.register
def fedau(
    local: Solver | None = None,
    *,
    cutoff: int | None = 50,
    average: str = "mean",
    rate: float = 0.1,
    groups: tuple[int, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedAU (Algorithms 1 and 2): ``u = (1/N) sum_b omega_b Delta_b``, omega learnt from participation intervals.

    Args:
        cutoff, average, rate, groups: of the weights, see `Participation`.

    Example:
        >>> fedau()
        Algorithm('fedau': AllAvailable() -> Sgd() -> Participation() -> DivideByClients() -> WeightedSum() ->
        ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024, section 5 and appendix C.
    """
    weights = Participation(cutoff, average, rate, groups)
    return compose(local or Sgd(), weights, DivideByClients(), ServerSgd(server_lr), also=also, name="fedau")
