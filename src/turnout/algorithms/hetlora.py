"""HetLoRA: average low-rank adapters of unequal ranks, padded with zeros, and prune ranks during training."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.core.checks import ConfigurationError
from turnout.pieces.aggregation import HetLora
from turnout.pieces.guard.truncated_rank import PrunedRank, of_ranks
from turnout.pieces.local import TailPenalty
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def hetlora(
    local: Solver | None = None,
    *,
    ranks: tuple[int, ...] | str | None = None,
    penalty: float | None = None,
    decay: float = 0.99,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average low-rank adapters of unequal ranks, padded with zeros and weighted by the norm of their product (HetLoRA).

    Args:
        local: local training; None is `Sgd` with its defaults.
        ranks: ranks of the clients, >= 1, or the path of a table of them; None is the rank of the model for all. See
            `TruncatedRank`.
        penalty: strength lambda of the penalty on tails in the paper's rank self-pruning, >= 0, see `TailPenalty`; None
            disables pruning.
        decay: factor gamma from a rank to the pruned one, in [0, 1], see `PrunedRank`.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Raises:
        ConfigurationError: if a penalty is given without ranks.

    Example:
        >>> hetlora()
        Algorithm('hetlora': AllAvailable() -> Sgd() -> DivideByParticipants() -> HetLora() -> ServerSgd())

    Reference: Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024.
    """
    ranked: tuple[Piece, ...] = of_ranks(ranks)
    if penalty is not None:
        if ranks is None:
            raise ConfigurationError(f"penalty={penalty} prunes ranks: write hetlora(ranks=(8, 4), penalty={penalty})")
        ranked = (*(PrunedRank(guard.ranks, decay) for guard in of_ranks(ranks)), TailPenalty(penalty))
    pieces = (local or Sgd(), *ranked, DivideByParticipants(), HetLora())
    return compose(*pieces, cohort_size=cohort_size, also=also, name="hetlora")
