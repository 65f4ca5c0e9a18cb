"""Power-of-choice: the clients whose loss is highest, of some random candidates."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.selection.power_of_choice import PowerOfChoice, RecentLoss
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def power_of_choice(
    local: Solver | None = None,
    *,
    cohort_size: int = 10,
    candidates: int = 20,
    shares: tuple[float, ...] | None = None,
    recent: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Power-of-choice: the plain mean over the m of d candidates with the highest loss.

    Args:
        cohort_size, candidates, shares: m, d and the candidates' probabilities, see `PowerOfChoice`.
        recent: go by the losses of each client's last local steps (rpow-d, `RecentLoss`) instead of asking the candidates
            for that of the present model (pow-d).

    Example:
        >>> power_of_choice()
        Algorithm('power_of_choice': PowerOfChoice() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning", AISTATS 2022
    (arXiv 2010.01243).
    """
    selection = (RecentLoss if recent else PowerOfChoice)(cohort_size, candidates, shares)
    pieces = (selection, DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="power_of_choice")
