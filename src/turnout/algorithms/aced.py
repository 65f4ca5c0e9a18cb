"""ACED: ACE over the clients that reported in the last steps.

It is meant for ``Experiment(pace=Buffered(1, starts_with_all=True))``.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import Aced
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients


@Defaults(pace={"name": "buffered", "buffer_size": 1, "starts_with_all": True})
@ALGORITHMS.register
def aced(
    local: Solver | None = None, *, tau: int = 50, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """ACED: ``x <- x + server_lr sum_{n in A} U_n / |A|``, U_n the last update of client n.

    A are the clients that reported in the last tau steps.

    Args:
        tau: how many server steps the update of a client counts, see `Aced`.

    Example:
        >>> aced()
        Algorithm('aced': AllAvailable() -> Sgd() -> DivideByClients() -> Aced() -> ServerSgd())

    Reference: Chang et al., "Mitigating participation imbalance bias in asynchronous federated learning", 2025 (arXiv
    2511.19066).
    """
    return compose(local or Sgd(), DivideByClients(), Aced(tau), ServerSgd(server_lr), also=also, name="aced")
