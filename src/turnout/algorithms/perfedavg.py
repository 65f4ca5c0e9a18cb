"""Per-FedAvg: train a model that each client adapts by a gradient step."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, compose
from turnout.pieces.local import Meta
from turnout.pieces.local.meta import Hessian
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def perfedavg(
    local: Sgd | None = None,
    *,
    alpha: float = 0.01,
    hessian: Hessian = "none",
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train a shared model that is good after one gradient step of adaptation at each client (Per-FedAvg).

    Clients train by model-agnostic meta-learning, and the server averages their models with equal weights.

    Args:
        local: local training, whose step size is the paper's beta; None is `Sgd` with its defaults.
        alpha: step size of the adaptation, > 0; see `Meta`.
        hessian: treatment of the Hessian: ``"none"`` (first order, FO) or ``"difference"`` (HF).
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> perfedavg()
        Algorithm('perfedavg': Uniform() -> Meta() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: a
    model-agnostic meta-learning approach", NeurIPS 2020.
    """
    pieces = (Meta.of(local or Sgd(), alpha, hessian), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="perfedavg")
