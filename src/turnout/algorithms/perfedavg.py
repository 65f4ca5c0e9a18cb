"""Per-FedAvg: a model to be adapted by each client."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Meta, Sgd
from turnout.pieces.local.meta import Hessian
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def perfedavg(
    local: Sgd | None = None,
    *,
    alpha: float = 0.01,
    hessian: Hessian = "none",
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Per-FedAvg: the mean of models that were trained to be good after one step of adaptation by their client.

    Args:
        alpha, hessian: of the local rule, see `Meta`; the step size of `local` is the paper's beta.
        cohort_size: clients in a round, uniform without replacement.

    Example:
        >>> perfedavg()
        Algorithm('perfedavg': Uniform() -> Meta() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: a
    model-agnostic meta-learning approach", NeurIPS 2020.
    """
    pieces = (Meta.of(local or Sgd(), alpha, hessian), DivideByParticipants(), ServerSgd(server_lr))
    return compose(Uniform(cohort_size), *pieces, also=also, name="perfedavg")
