"""FADAS: buffered asynchronous training whose server steps as AMSGrad does.

It is meant for ``Experiment(pace=Buffered(...))``.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.amsgrad import Delays, ServerAmsgrad
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered"})
@ALGORITHMS.register
def fadas(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = 1e-8,
    delays: Delays = "ignored",
    threshold: int = 1,
    bias_correction: bool = False,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FADAS: ``u = (1/B) sum_b Delta_b``, and the server steps along it as AMSGrad does.

    ``delays="paper"`` is the delay-adaptive variant.

    Args:
        server_lr, beta1, beta2, epsilon, delays, threshold, bias_correction: of the server's step, see `ServerAmsgrad`.

    Example:
        >>> fadas()
        Algorithm('fadas': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerAmsgrad())

    Reference: Wang et al., "FADAS: towards federated adaptive asynchronous optimization", ICML 2024.
    """
    server = ServerAmsgrad(server_lr, beta1, beta2, epsilon, delays, threshold, bias_correction)
    return compose(local or Sgd(), DivideByParticipants(), server, also=also, name="fadas")
