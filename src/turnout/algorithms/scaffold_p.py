"""Scaffold-P: FedAvg-P with control variates for the shared part.

It minimizes ``f(u, v) = (1/n) sum_i f_i(u, v_i)``, where u is the shared part, and v_i is the personal part of client
i. Pieces in `also` act before the control variates, which are means of the gradients after them.
"""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import Scaffold
from turnout.pieces.local.scaffold import Initial
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def scaffold_p(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    initial: Initial = "gradients",
    lr_factor: float = 1.0,
    outer_lr: float = 1.0,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Correct the drift of a shared part by control variates, beside personal parts (Scaffold-P, Algorithm 2).

    It is `fedavg_p` whose local steps on the shared part descend ``g - c_i + c``. Here g is a minibatch gradient, c_i
    is the control variate of client i, and c is the mean of all control variates. The personal part is not corrected.

    Args:
        local: local training, with the step size gamma_u; None is `Sgd` with its defaults.
        personal: personal parameters: ``"head"`` (the last layer), a pattern of names, or several; see `Personal`.
        initial: initial control variates: ``"gradients"``, for which all clients are asked once, or ``"zeros"``.
        lr_factor: step size of the personal part relative to that of the shared part, ``gamma_v / gamma_u``, > 0.
        outer_lr: outer step size eta_v of the personal part, > 0; 1 keeps the result of local steps.
        cohort_size: number or share of the clients of a round (m), drawn uniformly without replacement;
            None is all available clients.
        server_lr: outer step size eta_u of the shared part, > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> scaffold_p()
        Algorithm('scaffold_p': Uniform() -> Sgd() -> Scaffold(initial='gradients') -> DivideByParticipants() ->
        WeightedSum() -> ServerSgd() -> Personal())

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """
    pieces = (local or Sgd(), Scaffold("II", initial), Personal(personal, lr_factor, outer_lr), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="scaffold_p")
