"""FedRep: a personal head that moves before the shared representation."""

from __future__ import annotations

from turnout.algorithms.fedalt import fedalt
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Solver


@ALGORITHMS.register
def fedrep(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    share: float = 0.8,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedRep: many steps on the head v_i, then few on the representation u: `fedalt` with most of the steps for v_i.

    Args:
        share: of a client's local steps, how many go to the head, rounded down.

    Example:
        >>> fedrep()
        Algorithm('fedrep': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal(alternate=0.8))

    Reference: Collins et al., "Exploiting shared representations for personalized federated learning", ICML 2021.
    """
    return fedalt(local, personal=personal, share=share, cohort_size=cohort_size, server_lr=server_lr, also=also).named(
        "fedrep"
    )
