"""FedEx-LoRA: average low-rank adapters exactly, by a residual in the frozen weights."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import FedexLora
from turnout.pieces.weighting import ByExamples, DivideBySum


@ALGORITHMS.register
def fedex_lora(local: Solver | None = None, *, cohort_size: Size = None, also: tuple[Piece, ...] = ()) -> Algorithm:
    """Average the factors of low-rank adapters, and add what their product misses to the frozen weights (FedEx-LoRA).

    With this residual, the average of the adapters' products is exact. Weights are proportional to the number of
    examples; see `FedexLora`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedex_lora()
        Algorithm('fedex_lora': AllAvailable() -> Sgd() -> ByExamples() -> DivideBySum() -> FedexLora() -> ServerSgd())

    Reference: Singhal, Ponkshe and Vepakomma, "FedEx-LoRA: exact aggregation for federated and efficient fine-tuning of
    large language models", ACL 2025.
    """
    pieces = (local or Sgd(), ByExamples(), DivideBySum(), FedexLora())
    return compose(*pieces, cohort_size=cohort_size, also=also, name="fedex_lora")
