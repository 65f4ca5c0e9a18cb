"""AREA: the model is the mean of the last local models of all clients.

Use it with ``Experiment(pace=Buffered(...))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import Area
from turnout.pieces.weighting import DivideByClients


@Defaults(pace={"name": "buffered"})
@ALGORITHMS.register
def area(local: Solver | None = None, *, cohort_size: Size = None, also: tuple[Piece, ...] = ()) -> Algorithm:
    """Average the last local models of all clients, asynchronously (AREA).

    ``x <- x + (1/N) sum_b (x_b - y_b)``, then ``y_b = x_b``, where x is the model, x_b is the local model that client b
    reports, y_b is the one that it reported before, and N is the number of clients.

    The server has no step size; the clients' step size takes its role. It may be larger than with `fedbuff`, because
    the sum is divided by N and not by the size of the buffer.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> area()
        Algorithm('area': AllAvailable() -> Sgd() -> DivideByClients() -> Area() -> ServerSgd())

    Reference: Iakovidou and Kim, "Asynchronous federated stochastic optimization for heterogeneous objectives under
    arbitrary delays", 2024 (arXiv 2405.10123).
    """
    return compose(local or Sgd(), DivideByClients(), Area(), cohort_size=cohort_size, also=also, name="area")
