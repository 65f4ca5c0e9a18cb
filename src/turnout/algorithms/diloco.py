"""DiLoCo: train language models on workers that communicate rarely."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import AdamW, Solver
from turnout.pieces.server_optimizer.nesterov import ServerNesterov
from turnout.pieces.weighting import ByExamples, DivideByParticipants, DivideBySum


@Defaults(local={"solver": "adamw", "weight_decay": 0.1, "keep_state": True})
@ALGORITHMS.register
def diloco(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 0.7,
    beta: float = 0.9,
    every: int = 1,
    data_weighted: bool = False,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """DiLoCo: AdamW at the workers, which keep its state, and Nesterov's momentum at the server.

    The paper's inner steps are ``AdamW(lr=ByStep(LinearWarmup(Cosine(4e-4, rounds), 2)), steps=500, weight_decay=0.1,
    keep_state=True)``, with 1,000 steps of warm-up and 512 texts in a minibatch. One worker with ``server_lr=1, beta=0`` is
    AdamW.

    In asynchronous training (`pace=Buffered(1)`), ``every`` is the number of workers, and ``steps=TimeBudget(seconds)`` gives
    each worker as many steps as its speed allows (dynamic local updates).

    Args:
        local: inner steps; None is 5 steps of AdamW with the paper's decay.
        server_lr, beta, every: of the server's step, see `ServerNesterov`.
        data_weighted: weigh workers by their examples, as the paper does where their data differ.

    Example:
        >>> diloco()
        Algorithm('diloco': AllAvailable() -> AdamW(keep_state=True, weight_decay=0.1) -> DivideByParticipants() ->
        WeightedSum() -> ServerNesterov())

    References: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023 (arXiv
    2311.08105); Liu et al., "Asynchronous local-SGD training for language modeling", 2024 (arXiv 2401.09135).
    """
    weighting = (ByExamples(), DivideBySum()) if data_weighted else (DivideByParticipants(),)
    inner = local or AdamW(weight_decay=0.1, keep_state=True)
    return compose(inner, *weighting, ServerNesterov(server_lr, beta, every), also=also, name="diloco")
