"""FLoRA: adapters of any ranks, stacked into the frozen weights."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.pieces.aggregation import Flora
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def flora(
    local: Solver | None = None, *, ranks: tuple[int, ...] | str | None = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FLoRA: the adapters of a round, stacked, go into the frozen weights, and the next round begins with new ones.

    Args:
        ranks: of clients, or the path of a table of them, see `TruncatedRank`; None has all of them train the model's rank.

    Example:
        >>> flora()
        Algorithm('flora': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> Flora() -> ServerSgd())

    Reference: Wang et al., "FLoRA: federated fine-tuning large language models with heterogeneous low-rank adaptations",
    NeurIPS 2024.
    """
    return compose(local or Sgd(), *of_ranks(ranks), ByExamples(), DivideBySum(), Flora(), also=also, name="flora")
