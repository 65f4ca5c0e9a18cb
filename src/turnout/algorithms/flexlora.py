"""FlexLoRA: adapters of any ranks, averaged as products and decomposed again."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.pieces.aggregation import FlexLora
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def flexlora(
    local: Solver | None = None, *, ranks: tuple[int, ...] | str | None = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FlexLoRA: the average of the updates is cut to the rank of each client by its singular values.

    Args:
        ranks: of clients, or the path of a table of them, see `TruncatedRank`; None has all of them train the model's rank.

    Example:
        >>> flexlora()
        Algorithm('flexlora': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> FlexLora() -> ServerSgd())

    Reference: Bai et al., "Federated fine-tuning of large language models under heterogeneous tasks and client
    resources", NeurIPS 2024.
    """
    return compose(
        local or Sgd(), *of_ranks(ranks), ByExamples(), DivideBySum(), FlexLora(), also=also, name="flexlora"
    )
