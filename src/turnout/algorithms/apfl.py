"""APFL: mix a personal model with the shared one."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.local.pair_steps import MixtureSteps
from turnout.pieces.personalization.pair_models import Mixture
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def apfl(
    local: Solver | None = None,
    *,
    alpha: float = 0.5,
    adaptive: bool = False,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """APFL (Algorithm 1): federated averaging, beside which everyone trains its part of ``a v_k + (1 - a) w``.

    Args:
        alpha: the share a of a client's own model, see `Mixture`.
        adaptive: whether a moves by a gradient step, for each client by itself.
        cohort_size: clients in a round, uniform without replacement.

    Example:
        >>> apfl()
        Algorithm('apfl': Uniform() -> MixtureSteps() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Mixture())

    Reference: Deng, Kamani and Mahdavi, "Adaptive personalized federated learning", 2020 (arXiv 2003.13461).
    """
    pieces = (MixtureSteps.of(local or Sgd(), adaptive=adaptive), Mixture(alpha))
    return compose(*pieces, Uniform(cohort_size), DivideByParticipants(), ServerSgd(server_lr), also=also, name="apfl")
