"""FOLB: weigh updates by how well a client's gradient agrees with the cohort's.

It minimises ``f(w) = (1/N) sum_k F_k(w)`` from K clients a round. `also` takes further pieces: another selection, a
correction of the local gradient such as the proximal term (`Prox`), a guard. `fednu` has the selections that its paper
compares it with.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Inexactness, Sgd, Solver, StartGradient
from turnout.pieces.selection import TwoCohorts, Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import Alignment, ByExamples, DivideByAbsoluteSum, DivideBySecondCohort


@ALGORITHMS.register
def folb(
    local: Solver | None = None,
    *,
    cohort_size: int = 10,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FOLB with one cohort (eq. 13): ``w_b = <grad F_b, grad_1 f> / sum |<grad F_b, grad_1 f>|``, which may be negative.

    Args:
        cohort_size: clients in a round (K), uniform without replacement, as in the experiments.
        data_weighted: weigh clients by their examples, in the estimate of the gradient and in the weights (section II-A).

    Example:
        >>> folb()
        Algorithm('folb': Uniform() -> Sgd() -> StartGradient() -> Alignment() -> DivideByAbsoluteSum() -> WeightedSum()
        -> ServerSgd())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """
    weights = (*_examples(data_weighted), Alignment(), DivideByAbsoluteSum())
    pieces = (StartGradient(), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="folb")


@ALGORITHMS.register
def folb_heterogeneous(
    local: Solver | None = None,
    *,
    psi: float = 1.0,
    cohort_size: int = 10,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FOLB with inexactness (eq. 18): ``w_b ~ <grad F_b, grad_1 f> - psi gamma_b ||grad_1 f||^2``.

    Args:
        psi: weight of the inexactness; the paper searches {0.1, 1, 10, 100}, and 0 is `folb`.
        cohort_size, data_weighted: as in `folb`.

    Example:
        >>> folb_heterogeneous()
        Algorithm('folb_heterogeneous': Uniform() -> Sgd() -> StartGradient() -> Inexactness() -> Alignment(psi=1.0) ->
        DivideByAbsoluteSum() -> WeightedSum() -> ServerSgd())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """
    weights = (*_examples(data_weighted), Alignment(psi), DivideByAbsoluteSum())
    pieces = (StartGradient(), Inexactness(), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="folb_heterogeneous")


@ALGORITHMS.register
def folb_two_set(
    local: Solver | None = None,
    *,
    cohort_size: int = 10,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FOLB with two independent cohorts (Algorithm 2, eq. 9): the first trains, the second only sends gradients.

    Args:
        cohort_size: draws with replacement for each of the two (K).
        data_weighted: as in `folb`.

    Example:
        >>> folb_two_set()
        Algorithm('folb_two_set': TwoCohorts() -> Sgd() -> StartGradient() -> Alignment() -> DivideBySecondCohort() ->
        WeightedSum() -> ServerSgd())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """
    weights = (*_examples(data_weighted), Alignment(), DivideBySecondCohort(by_examples=data_weighted))
    pieces = (StartGradient(), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), TwoCohorts(cohort_size), *pieces, also=also, name="folb_two_set")


def _examples(data_weighted: bool) -> tuple[Piece, ...]:
    return (ByExamples(),) if data_weighted else ()
