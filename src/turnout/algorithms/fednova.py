"""FedNova: normalize updates by their number of local steps."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import ByExamples, DivideByLocalSteps


@ALGORITHMS.register
def fednova(
    local: Solver | None = None,
    *,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates divided by their number of local steps, so that unequal work causes no bias (FedNova).

    ``u = tau_eff sum_b p_b Delta_b / tau_b``. Here u is the direction of the server's step, p_b is the share of
    examples of participant b, Delta_b is its update, tau_b is its number of local steps, and tau_eff is their weighted
    mean.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fednova()
        Algorithm('fednova': Uniform() -> Sgd() -> ByExamples() -> DivideByLocalSteps() -> WeightedSum() -> ServerSgd())

    Reference: Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated optimization",
    NeurIPS 2020.
    """
    pieces = (local or Sgd(), ByExamples(), DivideByLocalSteps())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fednova")
