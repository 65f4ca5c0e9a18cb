"""FedAvg-P: federated averaging of a shared part, beside a personal part.

It minimises ``f(u, v) = (1/n) sum_i f_i(u, v_i)``: u is shared, and each client has a v_i of its own.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def fedavg_p(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    lr_factor: float = 1.0,
    outer_lr: float = 1.0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedAvg-P (Algorithm 1): K steps on both parts at once, then ``u <- u + eta_u mean(Delta u)`` and outer steps on v_i.

    With no personal parameters it is federated averaging with the plain mean; with all of them, local SGD.

    Args:
        local: the local steps; its step size is gamma_u.
        personal: which parameters are personal, see `Personal`.
        lr_factor: ``gamma_v / gamma_u``.
        outer_lr: eta_v.
        cohort_size: clients in a round (m), uniform without replacement.
        server_lr: eta_u.

    Example:
        >>> fedavg_p()
        Algorithm('fedavg_p': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal())

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """
    part = Personal(personal, lr_factor, outer_lr)
    pieces = (part, DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="fedavg_p")
