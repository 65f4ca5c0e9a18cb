"""Scaffold-P: FedAvg-P with control variates for the shared part.

It minimises ``f(u, v) = (1/n) sum_i f_i(u, v_i)``: u is shared, and each client has a v_i of its own. Pieces in `also` act
before the control variates, which are means of the gradients after them.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Scaffold, Sgd, Solver
from turnout.pieces.local.scaffold import Initial
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def scaffold_p(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    initial: Initial = "gradients",
    lr_factor: float = 1.0,
    outer_lr: float = 1.0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Scaffold-P (Algorithm 2): FedAvg-P whose shared part descends ``g - c_i + c``; the personal part is not corrected.

    Args:
        initial: control variates before the first round: ``"gradients"``, for which all clients are asked, or ``"zeros"``.
        local, personal, lr_factor, outer_lr, cohort_size, server_lr: as in `fedavg_p`.

    Example:
        >>> scaffold_p()
        Algorithm('scaffold_p': Uniform() -> Sgd() -> Scaffold(initial='gradients') -> DivideByParticipants() ->
        WeightedSum() -> ServerSgd() -> Personal())

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """
    part = Personal(personal, lr_factor, outer_lr)
    pieces = (Scaffold("II", initial), part, DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="scaffold_p")
