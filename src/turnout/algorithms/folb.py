"""FOLB: weight updates by the agreement of the client's gradient with the cohort's.

It minimizes ``f(w) = (1/N) sum_k F_k(w)`` with K of N clients in a round. `also` takes further pieces: another
selection, a correction of the local gradient such as the proximal term (`Prox`), a guard. `fednu` has the selections
with which the paper compares it.
"""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import Inexactness, StartGradient
from turnout.pieces.selection import TwoCohorts
from turnout.pieces.weighting import Alignment, ByExamples, DivideByAbsoluteSum, DivideBySecondCohort


@ALGORITHMS.register
def folb(
    local: Solver | None = None,
    *,
    cohort_size: Size = TEN,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weight updates by the agreement of the client's gradient with the cohort's mean gradient (FOLB, eq. 13).

    ``w_b = <grad F_b, grad_1 f> / sum_b |<grad F_b, grad_1 f>|`` is the weight of participant b. Here ``grad F_b`` is
    its full gradient at the received model, and ``grad_1 f`` is the mean of these over the cohort. Updates whose
    gradient opposes the mean are subtracted. See `Alignment`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        data_weighted: whether to weight clients by their number of examples, in the mean gradient and in the weights
            (section II-A).
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> folb()
        Algorithm('folb': Uniform() -> Sgd() -> StartGradient() -> Alignment() -> DivideByAbsoluteSum() -> WeightedSum()
        -> ServerSgd())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """
    pieces = (local or Sgd(), StartGradient(), *_examples(data_weighted), Alignment(), DivideByAbsoluteSum())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="folb")


@ALGORITHMS.register
def folb_heterogeneous(
    local: Solver | None = None,
    *,
    psi: float = 1.0,
    cohort_size: Size = TEN,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weight updates by gradient agreement, less a penalty on inexact local solutions (FOLB, eq. 18).

    ``w_b ~ <grad F_b, grad_1 f> - psi gamma_b ||grad_1 f||^2`` is the weight of participant b, with absolute values
    that sum to 1. Here ``grad F_b`` is its full gradient at the received model, ``grad_1 f`` is the mean of these over
    the cohort, and gamma_b is the inexactness of its local solution. Use it if clients do unequal amounts of work. See
    `Alignment`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        psi: penalty on inexactness, >= 0. The paper searches {0.1, 1, 10, 100}; 0 is `folb`.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        data_weighted: whether to weight clients by their number of examples, in the mean gradient and in the weights.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> folb_heterogeneous()
        Algorithm('folb_heterogeneous': Uniform() -> Sgd() -> StartGradient() -> Inexactness() -> Alignment(psi=1.0) ->
        DivideByAbsoluteSum() -> WeightedSum() -> ServerSgd())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """
    weights = (*_examples(data_weighted), Alignment(psi), DivideByAbsoluteSum())
    pieces = (local or Sgd(), StartGradient(), Inexactness(), *weights)
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="folb_heterogeneous")


@ALGORITHMS.register
def folb_two_set(
    local: Solver | None = None,
    *,
    cohort_size: Size = 10,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weight updates by gradient agreement, normalized by a second cohort that only sends gradients (FOLB, eq. 9).

    Both cohorts are drawn independently (Algorithm 2). See `Alignment` and `DivideBySecondCohort`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number of draws for each of the two cohorts (K), uniformly with replacement.
        data_weighted: whether to weight clients by their number of examples, in the mean gradients and in the weights.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> folb_two_set()
        Algorithm('folb_two_set': TwoCohorts() -> Sgd() -> StartGradient() -> Alignment() -> DivideBySecondCohort() ->
        WeightedSum() -> ServerSgd())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """
    weights = (*_examples(data_weighted), Alignment(), DivideBySecondCohort(by_examples=data_weighted))
    pieces = (local or Sgd(), TwoCohorts(cohort_size), StartGradient(), *weights)
    return compose(*pieces, server_lr=server_lr, also=also, name="folb_two_set")


def _examples(data_weighted: bool) -> tuple[Piece, ...]:
    return (ByExamples(),) if data_weighted else ()
