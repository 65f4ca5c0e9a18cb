"""FedBuff: buffered asynchronous training.

It is meant for ``Experiment(pace=Buffered(...))``; in synchronous rounds nothing is stale, and it is the plain mean.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByStaleness, DivideByParticipants, DivideBySum
from turnout.pieces.weighting.discount import Rule as Discount


@Defaults(
    pace={"name": "buffered"}, lr={"digits": 0.2}
)  # of the best test accuracy after 600 steps over two seeds, in reproductions/fedstaleweight
@ALGORITHMS.register
def fedbuff(
    local: Solver | None = None,
    *,
    discount: Discount = "constant",
    exponent: float = 0.5,
    base: float = 0.5,
    slope: float = 10.0,
    grace: int = 4,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedBuff: ``u = (1/B) sum_b s(tau_b) Delta_b``; s is 1 by default.

    The paper's own discount is ``"polynomial"``, 1 / sqrt(1 + tau). With ``"exponential"`` weights are divided by their sum,
    as FedStaleWeight's authors have it: a base of 0.5 favours fresh reports, and 2 is their reverse exponential.

    Args:
        discount, exponent, base, slope, grace: of the weights, see `ByStaleness`.

    Example:
        >>> fedbuff()
        Algorithm('fedbuff': AllAvailable() -> Sgd() -> ByStaleness(rule='constant') -> DivideByParticipants() ->
        WeightedSum() -> ServerSgd())

    Reference: Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022.
    """
    weights = ByStaleness(discount, exponent, base, slope, grace)
    divided = DivideBySum() if discount == "exponential" else DivideByParticipants()
    return compose(local or Sgd(), weights, divided, ServerSgd(server_lr), also=also, name="fedbuff")
