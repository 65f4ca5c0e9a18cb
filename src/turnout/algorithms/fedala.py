"""FedALA: each client learns how to mix the received model with its last local one, element by element.

Reference: Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023 (arXiv
2212.01197).
"""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import AggregationSteps
from turnout.pieces.personalization.pair_models import AggregatedModel
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedala(
    local: Solver | None = None,
    *,
    parameters: str | tuple[str, ...] = "head",
    share: float = 0.8,
    weight_lr: float = 1.0,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Start local training from a learned mixture of the received and the last local model of each client (FedALA).

    The server averages the trained models, weighted by the number of examples.

    Args:
        local: local training; None is `Sgd` with its defaults.
        parameters: parameters of the higher layers, whose mixing weights are learned: ``"head"`` (the last layer),
            ``"all"``, ``"none"``, a pattern of names, or several. ``"none"`` is federated averaging. See
            `AggregationSteps`.
        share: share of a client's examples on which mixing weights are learned, in (0, 1].
        weight_lr: step size of the mixing weights, > 0.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedala()
        Algorithm('fedala': Uniform() -> AggregationSteps() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerSgd() -> AggregatedModel())

    Reference: Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023 (arXiv
    2212.01197).
    """
    steps = AggregationSteps.of(local or Sgd(), parameters=parameters, share=share, weight_lr=weight_lr)
    pieces = (steps, AggregatedModel(), ByExamples(), DivideBySum())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedala")
