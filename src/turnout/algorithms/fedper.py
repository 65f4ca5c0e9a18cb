"""FedPer: shared base layers and a personal head."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedper(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the base layers of the model, and keep a personal head at each client (FedPer).

    Local steps update both parts. Base layers are averaged with weights proportional to the number of examples.

    Args:
        local: local training; None is `Sgd` with its defaults.
        personal: personal parameters: ``"head"`` (the last layer), a pattern of names, or several; see `Personal`.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedper()
        Algorithm('fedper': Uniform() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerSgd() ->
        Personal())

    Reference: Arivazhagan et al., "Federated learning with personalization layers", 2019.
    """
    pieces = (local or Sgd(), Personal(personal), ByExamples(), DivideBySum())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedper")
