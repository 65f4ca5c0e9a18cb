"""MaxFL: a model that meets the requirements of as many clients as possible.

The requirements of clients are part of the population (`Population.requirement`; by default, to do better than a model of
their own), and so is whether they leave when these are not met (`Population.opting`).
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import AppealGap, Sgd, Solver
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import Appeal, DivideBySumPlus
from turnout.pieces.weighting.appeal import Q


@ALGORITHMS.register
def maxfl(
    local: Solver | None = None,
    *,
    q: Q = "derivative",
    sharpness: float = 1.0,
    epsilon: float = 1e-3,
    tuning_steps: int = 0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """MaxFL (Algorithm 1): ``u = sum_b q_b Delta_b / (sum_b q_b + epsilon)``, q largest where a requirement is just met.

    Args:
        q, sharpness: of the weights, see `Appeal`.
        epsilon: see `DivideBySumPlus`.
        tuning_steps: local steps by which each client fine-tunes the model before its q is computed.
        cohort_size: clients in a round (m), uniform without replacement.

    Example:
        >>> maxfl()
        Algorithm('maxfl': Uniform() -> Sgd() -> AppealGap() -> Appeal() -> DivideBySumPlus() -> WeightedSum() ->
        ServerSgd())

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """
    rule = local or Sgd()
    gap = AppealGap(rule.alone(tuning_steps) if tuning_steps else None)
    pieces = (gap, Appeal(q, sharpness), DivideBySumPlus(epsilon), ServerSgd(server_lr))
    return compose(rule, Uniform(cohort_size), *pieces, also=also, name="maxfl")
