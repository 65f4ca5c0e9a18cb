"""raFLoRA: average adapters of unequal ranks part by part, over the clients that have the part."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.pieces.aggregation import RaFlora
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def raflora(
    local: Solver | None = None, *, ranks: tuple[int, ...] | str | None = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """raFLoRA: as FlexLoRA, with each part of the ranks averaged over the clients that have it.

    Args:
        ranks: of clients, or the path of a table of them, see `TruncatedRank`; None has all of them train the model's rank.

    Example:
        >>> raflora()
        Algorithm('raflora': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> RaFlora() -> ServerSgd())

    Reference: Wu, Hu, Min and Wang, "Preventing rank collapse in federated low-rank adaptation with client
    heterogeneity", 2026.
    """
    return compose(local or Sgd(), *of_ranks(ranks), ByExamples(), DivideBySum(), RaFlora(), also=also, name="raflora")
