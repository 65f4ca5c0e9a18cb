"""FlexLoRA: average low-rank adapters of unequal ranks as products, and decompose the average."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import FlexLora
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def flexlora(
    local: Solver | None = None,
    *,
    ranks: tuple[int, ...] | str | None = None,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the products of low-rank adapters, and decompose them for each client's rank by an SVD (FlexLoRA).

    Weights are proportional to the number of examples; see `FlexLora`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        ranks: ranks of the clients, >= 1, or the path of a table of them; None is the rank of the model for all. See
            `TruncatedRank`.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> flexlora()
        Algorithm('flexlora': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> FlexLora() -> ServerSgd())

    Reference: Bai et al., "Federated fine-tuning of large language models under heterogeneous tasks and client
    resources", NeurIPS 2024.
    """
    pieces = (local or Sgd(), *of_ranks(ranks), ByExamples(), DivideBySum(), FlexLora())
    return compose(*pieces, cohort_size=cohort_size, also=also, name="flexlora")
