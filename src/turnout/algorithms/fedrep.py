"""FedRep: train a personal head before the shared representation."""

from __future__ import annotations

from turnout.algorithms.fedalt import fedalt
from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Size, Solver


@ALGORITHMS.register
def fedrep(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    share: float = 0.8,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train a personal head with most local steps, and then the shared representation with the others (FedRep).

    It is `fedalt` with a larger share of steps for the personal part.

    Args:
        local: local training; None is `Sgd` with its defaults.
        personal: personal parameters: ``"head"`` (the last layer), a pattern of names, or several; see `Personal`.
        share: share of the local steps that update the head, in [0, 1]; their number is rounded down.
        cohort_size: number of clients in a round (K), drawn uniformly without replacement.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedrep()
        Algorithm('fedrep': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal(alternate=0.8))

    Reference: Collins et al., "Exploiting shared representations for personalized federated learning", ICML 2021.
    """
    return fedalt(local, personal=personal, share=share, cohort_size=cohort_size, server_lr=server_lr, also=also).named(
        "fedrep"
    )
