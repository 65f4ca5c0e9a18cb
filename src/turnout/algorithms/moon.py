"""MOON: local training with a contrastive term on representations.

Reference: Li, He and Song, "Model-contrastive federated learning", CVPR 2021 (arXiv 2103.16267).
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Contrastive, Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def moon(
    local: Solver | None = None,
    *,
    mu: float = 1.0,
    temperature: float = 0.5,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """MOON: the mean by examples of models that were trained with a contrastive term.

    A local step takes three forward passes more than one of FedAvg.

    Args:
        mu, temperature: of the term, see `Contrastive`.

    Example:
        >>> moon(mu=5.0)
        Algorithm('moon': AllAvailable() -> Sgd() -> Contrastive(mu=5.0) -> ByExamples() -> DivideBySum() ->
        WeightedSum() -> ServerSgd())
    """
    pieces = (Contrastive(mu, temperature), ByExamples(), DivideBySum(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="moon")
