"""DiLoCo: train language models on workers that communicate rarely."""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Size, Solver, compose
from turnout.pieces.local import AdamW
from turnout.pieces.server_optimizer.momentum import ServerNesterov
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
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train with AdamW at workers and Nesterov momentum at the server, with rare communication (DiLoCo).

    Workers keep the state of AdamW between rounds. The local steps of the paper are
    ``AdamW(lr=ByStep(LinearWarmup(Cosine(4e-4, rounds), 2)), steps=500, weight_decay=0.1, keep_state=True)``, with
    1,000 steps of warm-up and 512 texts in a minibatch. One worker with ``server_lr=1, beta=0`` is plain AdamW.

    In asynchronous training (``pace=Buffered(1)``), set `every` to the number of workers. ``steps=TimeBudget(seconds)``
    gives each worker as many steps as its speed allows (dynamic local updates).

    Args:
        local: local training; None is 5 steps of AdamW with the paper's weight decay.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round; see `ServerNesterov`.
        beta: decay of the server's momentum, in [0, 1).
        every: number of server steps for one update of the momentum, >= 1; see `ServerNesterov`.
        data_weighted: whether to weight workers by their number of examples, as the paper does for heterogeneous data.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> diloco()
        Algorithm('diloco': AllAvailable() -> AdamW(keep_state=True, weight_decay=0.1) -> DivideByParticipants() ->
        WeightedSum() -> ServerNesterov())

    References: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023 (arXiv
    2311.08105); Liu et al., "Asynchronous local-SGD training for language modeling", 2024 (arXiv 2401.09135).
    """
    weighting = (ByExamples(), DivideBySum()) if data_weighted else (DivideByParticipants(),)
    inner = local or AdamW(weight_decay=0.1, keep_state=True)
    pieces = (inner, *weighting, ServerNesterov(server_lr, beta, every))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="diloco")
