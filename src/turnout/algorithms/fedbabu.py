"""FedBABU: the body of the model is trained around a head that stays as it was drawn."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.personalization.frozen import Frozen
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedbabu(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "head",
    tunes: str = "all",
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedBABU: bodies are averaged by examples, and nobody trains or sends the head.

    Args:
        personal: the head, see `Frozen`.
        tunes: what clients fine-tune afterwards, see `Frozen`.
        cohort_size: clients in a round, uniform without replacement.

    Example:
        >>> fedbabu()
        Algorithm('fedbabu': Uniform() -> Sgd() -> ByExamples() -> DivideBySum() -> WeightedSum() -> ServerSgd() ->
        Frozen())

    Reference: Oh, Kim and Yun, "FedBABU: towards enhanced representation for federated image classification", ICLR 2022
    (arXiv 2106.06042).
    """
    pieces = (Frozen(personal, tunes=tunes), ByExamples(), DivideBySum(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="fedbabu")
