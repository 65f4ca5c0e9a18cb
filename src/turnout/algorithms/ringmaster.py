"""Ringmaster ASGD: take a step with every gradient that is not too stale, and ignore the others.

Use it with ``Experiment(pace=Buffered(1, max_staleness=R - 1))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "buffer_size": 1, "max_staleness": 9})  # a bound to be tuned
@ALGORITHMS.register
def ringmaster(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Take a step with every update that is not too stale, and ignore the others (Ringmaster ASGD).

    ``x <- x + server_lr Delta_b`` for every report whose staleness is below R, where x is the model, and Delta_b is the
    update of report b. The staleness of a report is the number of server steps since the version that the client
    trained from.

    The rule is that of `fedbuff` without a discount. The pace makes it Ringmaster:
    ``Buffered(1, max_staleness=R - 1)``. R trades noise for staleness; tune it. The paper also has a variant that stops
    clients whose gradient would arrive too late; here they finish, and their report is dropped. In the paper a client
    sends one stochastic gradient, which is ``Sgd(steps=1)``, and all clients have the same data distribution.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> ringmaster()
        Algorithm('ringmaster': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Maranjyan, Tyurin and Richtarik, "Ringmaster ASGD: the first asynchronous SGD with optimal time
    complexity", ICML 2025.
    """
    pieces = (local or Sgd(), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="ringmaster")
