"""Ringmaster ASGD: a step with every gradient that is not too stale; all others are ignored.

It is ``Experiment(pace=Buffered(1, max_staleness=R - 1))``.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "buffer_size": 1, "max_staleness": 9})  # a bound that is to be searched
@ALGORITHMS.register
def ringmaster(
    local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Ringmaster ASGD: ``x <- x + server_lr Delta_b`` for every report whose staleness is below R.

    The rule is FedBuff's without a discount; what makes it Ringmaster is the pace, ``Buffered(1, max_staleness=R - 1)``. R
    trades noise for staleness and is to be searched. The paper also has a variant that stops clients whose gradient would
    come too late; here they finish, and their report is dropped. A client sends one stochastic gradient in the paper, which
    is ``Sgd(steps=1)``. All clients are taken to hold the same distribution.

    Example:
        >>> ringmaster()
        Algorithm('ringmaster': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Maranjyan, Tyurin and Richtarik, "Ringmaster ASGD: the first asynchronous SGD with optimal time
    complexity", ICML 2025.
    """
    return compose(local or Sgd(), DivideByParticipants(), ServerSgd(server_lr), also=also, name="ringmaster")
