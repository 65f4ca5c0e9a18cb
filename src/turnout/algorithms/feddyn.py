"""FedDyn: regularize local objectives dynamically, so that their optima agree."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation.running_sums import FedDyn
from turnout.pieces.local.regularizers import DynamicRegularizer
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def feddyn(
    local: Solver | None = None,
    *,
    alpha: float = 0.1,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Regularize local objectives dynamically, so that their optima agree with the global one (FedDyn).

    Local steps of client k descend ``g - lambda_k + alpha (y - w)``. Here y is the local model, g its minibatch
    gradient, w the received model, and lambda_k a dual vector of the client. The server shifts the mean of the models
    by a vector of its own. Messages are as large as those of FedAvg.

    Args:
        local: local training; None is `Sgd` with its defaults.
        alpha: strength of the regularizer, > 0; see `DynamicRegularizer`.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round; 1 in the paper.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> feddyn()
        Algorithm('feddyn': AllAvailable() -> Sgd() -> DynamicRegularizer() -> DivideByParticipants() -> FedDyn() ->
        ServerSgd())

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021 (arXiv 2111.04263).
    """
    pieces = (local or Sgd(), DynamicRegularizer(alpha), FedDyn(), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="feddyn")
