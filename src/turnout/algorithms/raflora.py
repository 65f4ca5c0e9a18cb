"""raFLoRA: adapters of unequal ranks, of which no part shrinks for being rare."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.pieces.aggregation import RaFlora
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.guard import TruncatedRank
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def raflora(
    local: Solver | None = None, *, ranks: tuple[int, ...] | None = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """raFLoRA: as FlexLoRA, with each part of the ranks averaged over the clients that have it.

    Args:
        ranks: of clients, see `TruncatedRank`; None has all of them train the model's rank.

    Reference: Wu, Hu, Min and Wang, "Preventing rank collapse in federated low-rank adaptation with client
    heterogeneity", 2026.
    """
    own = () if ranks is None else (TruncatedRank(ranks),)
    return compose(local or Sgd(), *own, ByExamples(), DivideBySum(), RaFlora(), also=also, name="raflora")
