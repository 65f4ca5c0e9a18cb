"""HetLoRA: average adapters of any ranks, padded with zeros, and prune ranks in training."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.checks import ConfigurationError
from turnout.pieces.aggregation import HetLora
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.guard.pruned_rank import PrunedRank
from turnout.pieces.guard.truncated_rank import of_ranks
from turnout.pieces.local import Sgd, Solver, TailPenalty
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def hetlora(
    local: Solver | None = None,
    *,
    ranks: tuple[int, ...] | str | None = None,
    penalty: float | None = None,
    decay: float = 0.99,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """HetLoRA: factors of unequal ranks are padded with zeros and averaged by the size of their products.

    Args:
        ranks: of clients, or the path of a table of them, see `TruncatedRank`; None is the model's rank for all.
        penalty: lambda of the paper's rank self-pruning, see `TailPenalty`; None prunes nothing.
        decay: gamma of the self-pruning, see `PrunedRank`.

    Raises:
        ConfigurationError: for a penalty without ranks.

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
    return compose(local or Sgd(), *ranked, DivideByParticipants(), HetLora(), also=also, name="hetlora")
