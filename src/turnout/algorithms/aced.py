"""ACED: take a step with every report, along the mean of the last updates of recently active clients.

Use it with ``Experiment(pace=Buffered(1, starts_with_all=True))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import Aced
from turnout.pieces.weighting import DivideByClients


@Defaults(pace={"name": "buffered", "buffer_size": 1, "starts_with_all": True})
@ALGORITHMS.register
def aced(
    local: Solver | None = None,
    *,
    tau: int = 50,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the last updates of the clients that reported in recent steps, with a server step for every report (ACED).

    ``x <- x + server_lr sum_{n in A} U_n / |A|``, where x is the model, U_n is the last update of client n, and A is
    the set of clients that reported in the last tau server steps. Compared with `ace`, it leaves out updates that are
    too old.

    Args:
        local: local training; None is `Sgd` with its defaults.
        tau: number of server steps for which an update is used, >= 0; see `Aced`.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> aced()
        Algorithm('aced': AllAvailable() -> Sgd() -> DivideByClients() -> Aced() -> ServerSgd())

    Reference: Chang et al., "Mitigating participation imbalance bias in asynchronous federated learning", 2025 (arXiv
    2511.19066).
    """
    pieces = (local or Sgd(), DivideByClients(), Aced(tau))
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="aced")
