"""The mean over the participating clients."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def average_participating(
    local: Solver | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Return the mean over the participants: ``u = (1/B) sum_b Delta_b``. It is biased to clients that participate often.

    Example:
        >>> average_participating()
        Algorithm('average_participating': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())
    """
    return compose(
        local or Sgd(), DivideByParticipants(), ServerSgd(server_lr), also=also, name="average_participating"
    )
