"""FedALA: clients that learn how much of the received model to take, number by number.

Reference: Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023 (arXiv
2212.01197).
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import AggregationSteps, Sgd, Solver
from turnout.pieces.personalization.pair_models import AggregatedModel
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedala(
    local: Solver | None = None,
    *,
    parameters: str | tuple[str, ...] = "head",
    share: float = 0.8,
    weight_lr: float = 1.0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedALA: the mean by examples of models that begin as a mixture of the received one and the client's last one.

    Args:
        parameters, share, weight_lr: of the mixture's weights, see `AggregationSteps`; with ``"none"`` it is federated
            averaging.
        cohort_size: clients in a round, uniform without replacement.

    Example:
        >>> fedala()
        Algorithm('fedala': Uniform() -> AggregationSteps() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerSgd() -> AggregatedModel())
    """
    steps = AggregationSteps.of(local or Sgd(), parameters=parameters, share=share, weight_lr=weight_lr)
    pieces = (steps, AggregatedModel(), Uniform(cohort_size), ByExamples(), DivideBySum(), ServerSgd(server_lr))
    return compose(*pieces, also=also, name="fedala")
