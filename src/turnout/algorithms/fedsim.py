"""FedSim: a shared and a personal part that move together."""

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
def fedsim(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedSim: both parts move in every local step with one step size. It is FedAvg-P without outer steps on v_i.

    The plain mean, as Chen et al. have it; the authors' code weighs clients by their examples, which is `fedper`.

    Example:
        >>> fedsim()
        Algorithm('fedsim': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() -> Personal())

    Reference: Pillutla et al., "Federated learning with partial model personalization", ICML 2022.
    """
    pieces = (Personal(personal), DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="fedsim")
