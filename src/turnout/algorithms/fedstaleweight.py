"""FedStaleWeight: buffered asynchronous training in which slow clients have as much influence as fast ones.

Use it with ``Experiment(pace=Buffered(...))``. In synchronous rounds no report is stale, and it is the plain mean.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import DivideBySum, ExpectedStaleness
from turnout.pieces.weighting.staleness import Average, Rule


# Step size of the best test accuracy after 600 steps over two seeds, in reproductions/fedstaleweight.
@Defaults(pace={"name": "buffered"}, lr={"digits": 0.1})
@ALGORITHMS.register
def fedstaleweight(
    local: Solver | None = None,
    *,
    rule: Rule = "paper",
    average: Average = "window",
    window: int = 5,
    rate: float = 0.1,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weight buffered updates by their client's mean staleness, so that slow clients have equal influence (FedStaleWeight).

    ``u = sum_b a_b Delta_b / sum_b a_b`` with ``a_b = (E[tau_b] B + 1) / N`` (eq. 8). Here u is the direction of the
    server's step, Delta_b is the update of report b, ``E[tau_b]`` is the mean staleness of its client in server steps,
    B is the size of the buffer, and N is the number of clients.

    Args:
        local: local training; None is `Sgd` with its defaults.
        rule: ``"paper"`` (eq. 8), ``"algorithm_1"`` or ``"authors_code"``; see `ExpectedStaleness`.
        average: kind of mean: over a ``"window"``, ``"cumulative"``, ``"exponential"`` or ``"authors_window"``; see
            `ExpectedStaleness`.
        window: number of reports in a window, >= 1.
        rate: smoothing factor of the exponential average, in (0, 1]. Larger values follow recent reports more closely.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedstaleweight()
        Algorithm('fedstaleweight': AllAvailable() -> Sgd() -> ExpectedStaleness() -> DivideBySum() -> WeightedSum() ->
        ServerSgd())

    Reference: Ma et al., "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness
    reweighting", 2024.
    """
    pieces = (local or Sgd(), ExpectedStaleness(rule, average, window, rate), DivideBySum())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedstaleweight")
