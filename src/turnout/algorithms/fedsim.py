"""FedSim: train a shared and a personal part of the model simultaneously."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def fedsim(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train the shared and the personal part of the model simultaneously, and average the shared part (FedSim).

    Every local step updates both parts with one step size. It is `fedavg_p` without outer steps on the personal part.
    Shared parts are averaged with equal weights, as in Chen et al.; the authors' code weights clients by their number
    of examples, which is `fedper`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        personal: personal parameters: ``"head"`` (the last layer), a pattern of names, or several; see `Personal`.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedsim()
        Algorithm('fedsim': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() -> Personal())

    Reference: Pillutla et al., "Federated learning with partial model personalization", ICML 2022.
    """
    pieces = (local or Sgd(), Personal(personal), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedsim")
