"""FADAS: buffered asynchronous training with AMSGrad at the server.

Use it with ``Experiment(pace=Buffered(...))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
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
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average buffered updates, and take steps of AMSGrad at the server (FADAS).

    The direction is ``u = (1/B) sum_b Delta_b``, where Delta_b is the update of report b, and B is the size of the
    buffer. ``delays="paper"`` is the delay-adaptive variant, which takes smaller steps for stale reports.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        epsilon: constant added to the root of the second moment, > 0.
        delays: rule by which staleness reduces the step size: ``"ignored"``, ``"paper"`` or ``"authors_code"``; see
            `ServerAmsgrad`.
        threshold: largest staleness that does not reduce the step size, in server steps, >= 0.
        bias_correction: whether to correct the bias of the moments, as the authors' code does.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fadas()
        Algorithm('fadas': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerAmsgrad())

    Reference: Wang et al., "FADAS: towards federated adaptive asynchronous optimization", ICML 2024.
    """
    server = ServerAmsgrad(server_lr, beta1, beta2, epsilon, delays, threshold, bias_correction)
    return compose(local or Sgd(), DivideByParticipants(), server, cohort_size=cohort_size, also=also, name="fadas")
