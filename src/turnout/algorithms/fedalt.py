"""FedAlt: a shared and a personal part that move in turn."""

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
def fedalt(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    share: float = 0.5,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedAlt: the first local steps go to v_i with u frozen, the others to u with the new v_i frozen.

    Steps are counted together, so that it does as much work as `fedsim`: ``Sgd(steps=10)`` are 5 and 5.

    Args:
        share: of a client's local steps, how many go to v_i, rounded down.

    Example:
        >>> fedalt()
        Algorithm('fedalt': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal(alternate=0.5))

    Reference: Pillutla et al., "Federated learning with partial model personalization", ICML 2022.
    """
    pieces = (Personal(personal, alternate=share), DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="fedalt")
