"""FedAvg-P: federated averaging of a shared part, beside a personal part.

It minimizes ``f(u, v) = (1/n) sum_i f_i(u, v_i)``, where u is the shared part, and v_i is the personal part of client
i.
"""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def fedavg_p(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    lr_factor: float = 1.0,
    outer_lr: float = 1.0,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the shared part of the model, and keep a personal part at each client (FedAvg-P, Algorithm 1).

    Clients take K local steps on the shared part u and their personal part v_i at once. Then
    ``u <- u + eta_u mean(Delta u)``, and ``v_i <- v_i + eta_v Delta v_i`` at each participant, where ``Delta`` is the
    change by local steps. Without personal parameters it is federated averaging with the plain mean; if all are
    personal, it is local SGD.

    Args:
        local: local training, with the step size gamma_u; None is `Sgd` with its defaults.
        personal: personal parameters: ``"head"`` (the last layer), a pattern of names, or several; see `Personal`.
        lr_factor: step size of the personal part relative to that of the shared part, ``gamma_v / gamma_u``, > 0.
        outer_lr: outer step size eta_v of the personal part, > 0; 1 keeps the result of local steps.
        cohort_size: number or share of the clients of a round (m), drawn uniformly without replacement;
            None is all available clients.
        server_lr: outer step size eta_u of the shared part, > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedavg_p()
        Algorithm('fedavg_p': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal())

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """
    pieces = (local or Sgd(), Personal(personal, lr_factor, outer_lr), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedavg_p")
