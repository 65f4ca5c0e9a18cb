"""Rennala SGD: a step with a fixed number of gradients of the present model; stale ones are ignored.

It is ``Experiment(pace=Buffered(buffer_size, max_staleness=0))``.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "max_staleness": 0})
@ALGORITHMS.register
def rennala(
    local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Rennala SGD: ``u = (1/B) sum_b Delta_b`` over B reports that all were trained from the present model.

    The rule is FedBuff's without a discount; what makes it Rennala is the pace, ``Buffered(B, max_staleness=0)``: a client
    goes on from the present model as soon as it has reported, and may be in a step several times. A client sends one
    stochastic gradient in the paper, which is ``Sgd(steps=1)``. All clients are taken to hold the same distribution.

    Example:
        >>> rennala()
        Algorithm('rennala': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Tyurin and Richtarik, "Optimal time complexities of parallel stochastic optimization methods under a
    fixed computation model", NeurIPS 2023.
    """
    return compose(local or Sgd(), DivideByParticipants(), ServerSgd(server_lr), also=also, name="rennala")
