"""FedStaleWeight: buffered asynchronous training in which slow clients count fully.

It is meant for ``Experiment(pace=Buffered(...))``; in synchronous rounds nothing is stale, and it is the plain mean.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideBySum, ExpectedStaleness
from turnout.pieces.weighting.staleness import Average, Rule


@Defaults(
    pace={"name": "buffered"}, lr={"digits": 0.1}
)  # of the best test accuracy after 600 steps over two seeds, in reproductions/fedstaleweight
@ALGORITHMS.register
def fedstaleweight(
    local: Solver | None = None,
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

    Example:
        >>> fedstaleweight()
        Algorithm('fedstaleweight': AllAvailable() -> Sgd() -> ExpectedStaleness() -> DivideBySum() -> WeightedSum() ->
        ServerSgd())

    Reference: Ma et al., "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness
    reweighting", 2024.
    """
    weights = ExpectedStaleness(rule, average, window, rate)
    return compose(local or Sgd(), weights, DivideBySum(), ServerSgd(server_lr), also=also, name="fedstaleweight")
