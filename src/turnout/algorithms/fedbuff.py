"""FedBuff: buffered asynchronous training.

Use it with ``Experiment(pace=Buffered(...))``. In synchronous rounds no report is stale, and it is the plain mean.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import ByStaleness, DivideByParticipants, DivideBySum
from turnout.pieces.weighting.staleness import Discount


# Step size of the best test accuracy after 600 steps over two seeds, in reproductions/fedstaleweight.
@Defaults(pace={"name": "buffered"}, lr={"digits": 0.2})
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
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the updates of a buffer of reports, discounted by their staleness (FedBuff).

    ``u = (1/B) sum_b s(tau_b) Delta_b``. Here u is the direction of the server's step, B is the size of the buffer,
    Delta_b is the update of report b, tau_b is its staleness in server steps, and s is the discount, 1 by default.

    The discount of the paper is ``"polynomial"``, ``s = 1 / sqrt(1 + tau)``. With ``"exponential"``, weights are
    divided by their sum, as in the code of FedStaleWeight's authors: a base of 0.5 favors fresh reports, and a base of
    2 is their reverse exponential.

    Args:
        local: local training; None is `Sgd` with its defaults.
        discount: rule of s: ``"constant"``, ``"polynomial"``, ``"exponential"`` or ``"hinge"``; see `ByStaleness`.
        exponent: exponent of the polynomial rule, >= 0.
        base: base of the exponential rule, > 0.
        slope: slope of the hinge rule, > 0.
        grace: largest staleness that the hinge rule does not discount, in server steps, >= 0.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedbuff()
        Algorithm('fedbuff': AllAvailable() -> Sgd() -> ByStaleness(rule='constant') -> DivideByParticipants() ->
        WeightedSum() -> ServerSgd())

    Reference: Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022.
    """
    divided = DivideBySum() if discount == "exponential" else DivideByParticipants()
    pieces = (local or Sgd(), ByStaleness(discount, exponent, base, slope, grace), divided)
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedbuff")
