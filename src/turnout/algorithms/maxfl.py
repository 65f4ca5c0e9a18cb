"""MaxFL: train a model that meets the requirements of as many clients as possible.

The requirements are part of the population (`Population.requirement`; by default, to do better than a model of the
client alone), and so is whether clients leave when these are not met (`Population.opting`).
"""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import AppealGap
from turnout.pieces.weighting import Appeal, DivideBySumPlus
from turnout.pieces.weighting.requirement import Q


@ALGORITHMS.register
def maxfl(
    local: Solver | None = None,
    *,
    q: Q = "derivative",
    sharpness: float = 1.0,
    epsilon: float = 1e-3,
    tuning_steps: int = 0,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train a model that meets the requirements of as many clients as possible (MaxFL, Algorithm 1).

    ``u = sum_b q_b Delta_b / (sum_b q_b + epsilon)``. Here u is the direction of the server's step, Delta_b is the
    update of participant b, and q_b is its weight, which is largest if its requirement is just met (see `Appeal`).

    Args:
        local: local training; None is `Sgd` with its defaults.
        q: rule of the weights, ``"derivative"`` or ``"sigmoid"``; see `Appeal`.
        sharpness: factor on the gap between loss and requirement, > 0; see `Appeal`.
        epsilon: constant added to the sum of weights, >= 0; see `DivideBySumPlus`.
        tuning_steps: number of local steps by which each client fine-tunes the model before its gap is measured; 0
            measures the received model.
        cohort_size: number or share of the clients of a round (m), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> maxfl()
        Algorithm('maxfl': Uniform() -> Sgd() -> AppealGap() -> Appeal() -> DivideBySumPlus() -> WeightedSum() ->
        ServerSgd())

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """
    rule = local or Sgd()
    gap = AppealGap(rule.alone(tuning_steps) if tuning_steps else None)
    pieces = (rule, gap, Appeal(q, sharpness), DivideBySumPlus(epsilon))
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="maxfl")
