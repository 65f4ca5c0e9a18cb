"""CA2FL: buffered asynchronous training, calibrated by the last update of each client.

It is meant for ``Experiment(pace=Buffered(...))``.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import FedVarp
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "waits": "always"})
@ALGORITHMS.register
def ca2fl(local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()) -> Algorithm:
    """CA2FL: ``v = h + (1/B) sum_b (Delta_b - h_b)``, ``x <- x + server_lr v``, then ``h_b = Delta_b``, h their mean.

    (Algorithm 2.) It is FedVARP's rule on the reports of a buffer. The paper's clients are in a buffer once:
    ``Buffered(waits="always")``. Otherwise each report of a client is calibrated by what was kept before the step.

    Example:
        >>> ca2fl()
        Algorithm('ca2fl': AllAvailable() -> Sgd() -> DivideByParticipants() -> FedVarp() -> ServerSgd())

    Reference: Wang et al., "Tackling the data heterogeneity in asynchronous federated learning with cached update
    calibration", ICLR 2024.
    """
    pieces = (DivideByParticipants(), FedVarp(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="ca2fl")
