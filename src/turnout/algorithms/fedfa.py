"""FedFa: fully asynchronous training by a sliding window of client models.

Reference: Xu et al., "FedFa: a fully asynchronous training paradigm for federated learning", IJCAI 2024 (arXiv
2404.11015).
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.aggregation.models import RecentModels
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "buffer_size": 1})
@ALGORITHMS.register
def fedfa(
    local: Solver | None = None, *, window: int = 5, cohort_size: Size = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Average the last K client models that have arrived, with a server step for every report (FedFa).

    Use it with ``Experiment(pace=Buffered(buffer_size=1))``. No client waits, and a stale model has the weight 1/K.

    Args:
        local: local training; None is `Sgd` with its defaults.
        window: number K of models in the average, >= 1; see `RecentModels`.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedfa()
        Algorithm('fedfa': AllAvailable() -> Sgd() -> DivideByParticipants() -> RecentModels() -> ServerSgd())

    Reference: Xu et al., "FedFa: a fully asynchronous training paradigm for federated learning", IJCAI 2024 (arXiv
    2404.11015).
    """
    pieces = (local or Sgd(), DivideByParticipants(), RecentModels(window))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="fedfa")
