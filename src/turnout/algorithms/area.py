"""AREA: the model is the mean of where all clients last arrived.

It is meant for ``Experiment(pace=Buffered(...))``.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.pieces.aggregation import Area
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import DivideByClients


@Defaults(pace={"name": "buffered"})
@ALGORITHMS.register
def area(local: Solver | None = None, *, also: tuple[Piece, ...] = ()) -> Algorithm:
    """AREA: ``x <- x + (1/N) sum_b (x_b - y_b)``, then ``y_b = x_b``; x_b the model that b arrived at, y_b the one before.

    There is no step size of the server: the clients' decides. It may be larger than with FedBuff, since what a step adds is
    divided by N and not by the size of the buffer.

    Example:
        >>> area()
        Algorithm('area': AllAvailable() -> Sgd() -> DivideByClients() -> Area() -> ServerSgd())

    Reference: Iakovidou and Kim, "Asynchronous federated stochastic optimization for heterogeneous objectives under
    arbitrary delays", 2024 (arXiv 2405.10123).
    """
    return compose(local or Sgd(), DivideByClients(), Area(), also=also, name="area")
