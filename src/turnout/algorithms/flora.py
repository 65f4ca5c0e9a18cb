"""FLoRA: stack low-rank adapters of unequal ranks, and merge them into the frozen weights."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import Flora
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def flora(
    local: Solver | None = None,
    *,
    ranks: tuple[int, ...] | str | None = None,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Merge the stacked low-rank adapters of a round into the frozen weights, and restart with new ones (FLoRA).

    Weights are proportional to the number of examples; see `Flora`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        ranks: ranks of the clients, >= 1, or the path of a table of them; None is the rank of the model for all. See
            `TruncatedRank`.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> flora()
        Algorithm('flora': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> Flora() -> ServerSgd())

    Reference: Wang et al., "FLoRA: federated fine-tuning large language models with heterogeneous low-rank
    adaptations", NeurIPS 2024.
    """
    pieces = (local or Sgd(), *of_ranks(ranks), ByExamples(), DivideBySum(), Flora())
    return compose(*pieces, cohort_size=cohort_size, also=also, name="flora")
