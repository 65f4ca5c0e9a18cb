"""FedAlt: train a shared and a personal part of the model in alternation."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def fedalt(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    share: float = 0.5,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train the personal part of the model first, and then the shared part, in each round (FedAlt).

    The first local steps of client i update its personal part v_i with the shared part u frozen. The others update u
    with the new v_i frozen. Both are counted in the steps of `local`, so a round has as much work as with `fedsim`:
    ``Sgd(steps=10)`` is 5 and 5 steps.

    Args:
        local: local training; None is `Sgd` with its defaults.
        personal: personal parameters: ``"head"`` (the last layer), a pattern of names, or several; see `Personal`.
        share: share of the local steps that update v_i, in [0, 1]; their number is rounded down.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedalt()
        Algorithm('fedalt': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal(alternate=0.5))

    Reference: Pillutla et al., "Federated learning with partial model personalization", ICML 2022.
    """
    pieces = (local or Sgd(), Personal(personal, alternate=share), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedalt")
