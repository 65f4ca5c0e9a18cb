"""ACE: take a step with every report, along the mean of the last updates of all clients.

Use it with ``Experiment(pace=Buffered(1, starts_with_all=True))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import Mifa
from turnout.pieces.weighting import DivideByClients


@Defaults(pace={"name": "buffered", "buffer_size": 1, "starts_with_all": True})
@ALGORITHMS.register
def ace(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the last updates of all clients, with a server step for every report (ACE, Algorithm 1).

    ``U_b = Delta_b`` for each client b that reports, then ``x <- x + server_lr (1/N) sum_n U_n``, where x is the model,
    U_n the last update of client n, and N the number of clients. It is the rule of `mifa` for asynchronous training:
    clients have equal influence, however often they report.

    The first step of the paper waits for all clients, as ``Buffered(1, starts_with_all=True)`` does; without it U
    begins at 0. In the paper a client sends one stochastic gradient, which is ``Sgd(steps=1)``; its step size times
    `server_lr` is the paper's eta.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server, > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> ace()
        Algorithm('ace': AllAvailable() -> Sgd() -> DivideByClients() -> Mifa() -> ServerSgd())

    Reference: Chang et al., "Mitigating participation imbalance bias in asynchronous federated learning", 2025 (arXiv
    2511.19066).
    """
    pieces = (local or Sgd(), DivideByClients(), Mifa())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="ace")
