"""FedBABU: train the body of the model around a head that keeps its initial values."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.personalization.frozen import Frozen, Tunes
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedbabu(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    tunes: Tunes = "all",
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the bodies of the clients' models, around a head that keeps its initial values (FedBABU).

    Bodies are averaged with weights proportional to the number of examples. The head is neither trained nor sent;
    clients fine-tune the model after training.

    Args:
        local: local training; None is `Sgd` with its defaults.
        personal: parameters of the head: ``"head"`` (the last layer), a pattern of names, or several; see `Frozen`.
        tunes: parameters that clients fine-tune after training, ``"all"`` or ``"head"``; see `Frozen`.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedbabu()
        Algorithm('fedbabu': Uniform() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerSgd() ->
        Frozen())

    Reference: Oh, Kim and Yun, "FedBABU: towards enhanced representation for federated image classification", ICLR 2022
    (arXiv 2106.06042).
    """
    pieces = (local or Sgd(), Frozen(personal, tunes=tunes), ByExamples(), DivideBySum())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedbabu")
