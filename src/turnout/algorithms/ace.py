"""ACE: a step with every report, along the mean of the last updates of all clients.

It is meant for ``Experiment(pace=Buffered(1, starts_with_all=True))``.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import Mifa
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients


@Defaults(pace={"name": "buffered", "buffer_size": 1, "starts_with_all": True})
@ALGORITHMS.register
def ace(local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()) -> Algorithm:
    """ACE: ``U_b = Delta_b`` for the clients that report, then ``x <- x + server_lr (1/N) sum_n U_n`` (Algorithm 1).

    It is MIFA's rule, with a step for every report. The paper's first step waits for all clients, which is what
    ``starts_with_all`` does; without it U begins at 0. A client sends one stochastic gradient in the paper, which is
    ``Sgd(steps=1)``: its step size times `server_lr` is the paper's eta.

    Example:
        >>> ace()
        Algorithm('ace': AllAvailable() -> Sgd() -> DivideByClients() -> Mifa() -> ServerSgd())

    Reference: Chang et al., "Mitigating participation imbalance bias in asynchronous federated learning", 2025 (arXiv
    2511.19066).
    """
    return compose(local or Sgd(), DivideByClients(), Mifa(), ServerSgd(server_lr), also=also, name="ace")
