"""CA2FL: buffered asynchronous training, calibrated by the last update of each client.

Use it with ``Experiment(pace=Buffered(...))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import FedVarp
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "waits": "always"})
@ALGORITHMS.register
def ca2fl(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average buffered updates, calibrated by the last update of each client (CA2FL, Algorithm 2).

    ``v = h + (1/B) sum_b (Delta_b - h_b)``, ``x <- x + server_lr v``, then ``h_b = Delta_b``. Here x is the model,
    Delta_b is the update of report b, B is the size of the buffer, h_b is the update that the client reported before,
    and h is the mean of these over all clients.

    It is the rule of `fedvarp` for the reports of a buffer. In the paper a client is in a buffer at most once, as with
    ``Buffered(waits="always")``. Otherwise each of its reports is calibrated by the update from before the step.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> ca2fl()
        Algorithm('ca2fl': AllAvailable() -> Sgd() -> DivideByParticipants() -> FedVarp() -> ServerSgd())

    Reference: Wang et al., "Tackling the data heterogeneity in asynchronous federated learning with cached update
    calibration", ICLR 2024.
    """
    pieces = (local or Sgd(), DivideByParticipants(), FedVarp())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="ca2fl")
