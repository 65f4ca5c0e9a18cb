"""FedFa: fully asynchronous training by a sliding window of client models.

Reference: Xu et al., "FedFa: a fully asynchronous training paradigm for federated learning", IJCAI 2024 (arXiv 2404.11015).
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.pieces.aggregation.recent_models import RecentModels
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "buffer_size": 1})
@ALGORITHMS.register
def fedfa(local: Solver | None = None, *, window: int = 5, also: tuple[Piece, ...] = ()) -> Algorithm:
    """FedFa: with every report the model becomes the mean of the last K models that arrived.

    It is meant for ``Experiment(pace=Buffered(buffer_size=1))``; nobody waits, and a stale model counts 1/K.

    Args:
        window: K, see `RecentModels`.

    Example:
        >>> fedfa()
        Algorithm('fedfa': AllAvailable() -> Sgd() -> DivideByParticipants() -> RecentModels() -> ServerSgd())
    """
    return compose(local or Sgd(), DivideByParticipants(), RecentModels(window), also=also, name="fedfa")
