"""HetLoRA: adapters of any ranks, padded with zeros."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.pieces.aggregation import HetLora
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def hetlora(
    local: Solver | None = None, *, ranks: tuple[int, ...] | str | None = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """HetLoRA: factors of unequal ranks are padded with zeros and averaged by the size of their products.

    Args:
        ranks: of clients, or the path of a table of them, see `TruncatedRank`; None has all of them train the model's rank.

    Example:
        >>> hetlora()
        Algorithm('hetlora': AllAvailable() -> Sgd() -> DivideByParticipants() -> HetLora() -> ServerSgd())

    Reference: Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024.
    """
    return compose(local or Sgd(), *of_ranks(ranks), DivideByParticipants(), HetLora(), also=also, name="hetlora")
