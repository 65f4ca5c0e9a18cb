"""FedStaleWeight and what else weighs reports that come too late: FedBuff and FedAsync.

All three are meant for ``Experiment(pace=Buffered(...))``; in synchronous rounds nothing is stale, and FedStaleWeight and
FedBuff are the plain mean. `also` takes further pieces: a correction of the local gradient, a guard.

Reference: Ma et al., "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness
reweighting", 2024.
"""

from __future__ import annotations

from turnout.aggregation import WeightedModels
from turnout.core.algorithm import Algorithm
from turnout.core.checks import positive, refuse
from turnout.core.compose import compose
from turnout.core.pieces import Piece
from turnout.core.schedule import Schedule
from turnout.local import Sgd
from turnout.server import ServerSgd
from turnout.weighting import ByStaleness, DivideByParticipants, DivideBySum, ExpectedStaleness
from turnout.weighting.discount import Rule as Discount
from turnout.weighting.staleness import Average, Rule


def fedstaleweight(
    local: Sgd | None = None,
    *,
    rule: Rule = "paper",
    average: Average = "window",
    window: int = 5,
    rate: float = 0.1,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedStaleWeight: ``u = sum_b a_b Delta_b / sum_b a_b`` with ``a_b = (E[tau_b] B + 1) / N`` (equation 8).

    Args:
        rule, average, window, rate: of the weights, see `ExpectedStaleness`.
    """
    weights = ExpectedStaleness(rule, average, window, rate)
    return compose(local or Sgd(), weights, DivideBySum(), ServerSgd(server_lr), *also, name="fedstaleweight")


def fedbuff(
    local: Sgd | None = None,
    *,
    discount: Discount = "constant",
    exponent: float = 0.5,
    base: float = 0.5,
    slope: float = 10.0,
    grace: int = 4,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedBuff: ``u = (1/B) sum_b s(tau_b) Delta_b``; s is 1 unless a discount is chosen.

    The paper's own discount is ``"polynomial"``, 1 / sqrt(1 + tau). With ``"exponential"`` weights are divided by their sum,
    as FedStaleWeight's authors have it: base 0.5 favours the fresh, and 2 is their reverse exponential.

    Args:
        discount, exponent, base, slope, grace: of the weights, see `ByStaleness`.

    Reference: Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022.
    """
    weights = ByStaleness(discount, exponent, base, slope, grace)
    divided = DivideBySum() if discount == "exponential" else DivideByParticipants()
    return compose(local or Sgd(), weights, divided, ServerSgd(server_lr), *also, name="fedbuff")


def fedasync(
    local: Sgd | None = None,
    *,
    alpha: float = 0.6,
    discount: Discount = "polynomial",
    exponent: float = 0.5,
    base: float = 0.5,
    slope: float = 10.0,
    grace: int = 4,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedAsync: ``x <- (1 - alpha_t) x + alpha_t x_b`` with ``alpha_t = alpha s(tau_b)``, x_b the client's model.

    In the paper every report is a step (``Buffered(buffer_size=1)``); of several the mean is taken. The paper's clients also
    have a proximal term: ``also=(Prox(mu),)``.

    Args:
        alpha: the mixing weight, in (0, 1].
        discount, exponent, base, slope, grace: of the weights, see `ByStaleness`.

    Reference: Xie et al., "Asynchronous federated optimization", OPT 2020.
    """
    positive("alpha", alpha)
    if alpha > 1:
        raise refuse(
            "alpha", given=alpha, needed="a number > 0 and <= 1", instead="It is a share of the client's model"
        )
    pieces = (ByStaleness(discount, exponent, base, slope, grace), DivideByParticipants(), WeightedModels())
    return compose(local or Sgd(), *pieces, ServerSgd(alpha), *also, name="fedasync")
