"""raFLoRA: average low-rank adapters of unequal ranks part by part, over the clients that train the part."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import RaFlora
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def raflora(
    local: Solver | None = None,
    *,
    ranks: tuple[int, ...] | str | None = None,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average products of low-rank adapters part by part, over the clients that train the part, and decompose them (raFLoRA).

    It is `flexlora`, except that each part of the ranks is averaged over those clients alone, which prevents the
    collapse of ranks that few clients train. See `RaFlora`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        ranks: ranks of the clients, >= 1, or the path of a table of them; None is the rank of the model for all. See
            `TruncatedRank`.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> raflora()
        Algorithm('raflora': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> RaFlora() -> ServerSgd())

    Reference: Wu, Hu, Min and Wang, "Preventing rank collapse in federated low-rank adaptation with client
    heterogeneity", 2026.
    """
    pieces = (local or Sgd(), *of_ranks(ranks), ByExamples(), DivideBySum(), RaFlora())
    return compose(*pieces, cohort_size=cohort_size, also=also, name="raflora")
