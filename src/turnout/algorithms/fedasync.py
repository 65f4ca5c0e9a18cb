"""FedAsync: take a server step with every report, the smaller the staler the report.

Use it with ``Experiment(pace=Buffered(buffer_size=1))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.core.checks import positive, refuse
from turnout.pieces.aggregation import WeightedModels
from turnout.pieces.weighting import ByStaleness, DivideByParticipants
from turnout.pieces.weighting.staleness import Discount


# Step size of the best test accuracy after 600 steps over two seeds, in reproductions/fedstaleweight.
@Defaults(pace={"name": "buffered"}, lr={"digits": 0.4})
@ALGORITHMS.register
def fedasync(
    local: Solver | None = None,
    *,
    alpha: float = 0.6,
    discount: Discount = "polynomial",
    exponent: float = 0.5,
    base: float = 0.5,
    slope: float = 10.0,
    grace: int = 4,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Mix each reported model into the global one, with a weight that decreases with staleness (FedAsync).

    ``x <- (1 - alpha_t) x + alpha_t x_b`` with ``alpha_t = alpha s(tau_b)``. Here x is the global model, x_b is the
    model of client b, tau_b is the staleness of its report in server steps, and s is the discount (see `ByStaleness`).

    In the paper every report is a step (``Buffered(buffer_size=1)``); with a larger buffer, its reports are averaged.
    The paper's clients also have a proximal term: ``also=(Prox(mu),)``.

    Args:
        local: local training; None is `Sgd` with its defaults.
        alpha: mixing weight of a fresh report, in (0, 1].
        discount: rule of s: ``"constant"``, ``"polynomial"``, ``"exponential"`` or ``"hinge"``.
        exponent: exponent of the polynomial rule, >= 0.
        base: base of the exponential rule, > 0.
        slope: slope of the hinge rule, > 0.
        grace: largest staleness that the hinge rule does not discount, in server steps, >= 0.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Raises:
        ConfigurationError: if `alpha` is outside (0, 1], or for the reasons that `ByStaleness` names.

    Example:
        >>> fedasync()
        Algorithm('fedasync': AllAvailable() -> Sgd() -> ByStaleness() -> DivideByParticipants() -> WeightedModels() ->
        ServerSgd(lr=0.6))

    Reference: Xie et al., "Asynchronous federated optimization", OPT 2020.
    """
    positive("alpha", alpha)
    if alpha > 1:
        raise refuse(
            "alpha", given=alpha, needed="a number > 0 and <= 1", instead="It is a share of the client's model"
        )
    discounts = ByStaleness(discount, exponent, base, slope, grace)
    pieces = (local or Sgd(), discounts, DivideByParticipants(), WeightedModels())
    return compose(*pieces, server_lr=alpha, cohort_size=cohort_size, also=also, name="fedasync")
