"""FOLB, the selections that its paper weighs it against, and the baselines FedProx and FedNova.

All minimise ``f(w) = (1/N) sum_k F_k(w)`` from K clients a round. `also` takes further pieces: another selection, a
correction of the local gradient such as the proximal term (`Prox`), a guard.

Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
"""

from __future__ import annotations

from turnout.algorithms.selected import selected
from turnout.core.algorithm import Algorithm
from turnout.core.checks import known_name
from turnout.core.compose import compose
from turnout.core.pieces import Piece, Selection
from turnout.core.schedule import Schedule
from turnout.local import Inexactness, Prox, Sgd, StartGradient
from turnout.selection import (
    ByAlignment,
    ByAlignmentAndInexactness,
    ByGradientNorm,
    TwoCohorts,
    Uniform,
    WithReplacement,
)
from turnout.server import ServerSgd
from turnout.weighting import (
    Alignment,
    ByExamples,
    DivideByAbsoluteSum,
    DivideByLocalSteps,
    DivideByParticipants,
    DivideBySecondCohort,
    DivideBySum,
    SignOfAlignment,
)


def folb(
    local: Sgd | None = None,
    *,
    cohort_size: int = 10,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FOLB with one cohort (eq. 13): ``w_b = <grad F_b, grad_1 f> / sum |<grad F_b, grad_1 f>|``, negatives subtract.

    Args:
        cohort_size: clients in a round (K), uniform without replacement, as in the experiments.
        data_weighted: clients count by their examples, in the estimate of the gradient and in the weights (section II-A).
    """
    weights = (*_examples(data_weighted), Alignment(), DivideByAbsoluteSum())
    pieces = (StartGradient(), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), *selected(Uniform(cohort_size), also), *pieces, name="folb")


def folb_heterogeneous(
    local: Sgd | None = None,
    *,
    psi: float = 1.0,
    cohort_size: int = 10,
    data_weighted: bool = False,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FOLB that counts how far clients got (eq. 18): ``w_b ~ <grad F_b, grad_1 f> - psi gamma_b ||grad_1 f||^2``.

    Args:
        psi: how much inexactness counts; the paper searches {0.1, 1, 10, 100}, and 0 is `folb`.
        cohort_size, data_weighted: as in `folb`.
    """
    weights = (*_examples(data_weighted), Alignment(psi), DivideByAbsoluteSum())
    pieces = (StartGradient(), Inexactness(), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), *selected(Uniform(cohort_size), also), *pieces, name="folb_heterogeneous")


def folb_two_set(
    local: Sgd | None = None,
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
    """
    weights = (*_examples(data_weighted), Alignment(), DivideBySecondCohort(by_examples=data_weighted))
    pieces = (StartGradient(), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), *selected(TwoCohorts(cohort_size), also), *pieces, name="folb_two_set")


def fednu(
    local: Sgd | None = None,
    *,
    by: str = "alignment",
    signs: bool = False,
    psi: float = 1.0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedNu (Algorithm 1): the mean over K draws with replacement from a distribution that favours useful clients.

    Args:
        by: what a client's probability goes by: ``"alignment"`` (eq. 7, naive algorithm 1: all send gradients),
            ``"norm"`` (naive algorithm 2: all send one number), ``"alignment_and_inexactness"`` (eq. 16) or ``"uniform"``.
        signs: subtract the updates that point uphill (eq. 5); needs the gradients of all.
        psi: of eq. 16.
        cohort_size: draws in a round (K).
    """
    distributions: dict[str, Selection] = {
        "alignment": ByAlignment(cohort_size),
        "norm": ByGradientNorm(cohort_size),
        "alignment_and_inexactness": ByAlignmentAndInexactness(psi, cohort_size),
        "uniform": WithReplacement(cohort_size),
    }
    selection = distributions[known_name("by", by, distributions)]
    weights = (StartGradient(), SignOfAlignment()) if signs else ()
    pieces = (*weights, DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), *selected(selection, also), *pieces, name="fednu")


def fedprox(
    local: Sgd | None = None,
    *,
    mu: float = 0.01,
    weighted: bool = True,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedProx: local steps on ``F_k(w) + mu/2 ||w - w^t||^2``, then the mean of the cohort's models.

    Args:
        mu: of the proximal term; 0 is federated averaging of a uniform cohort.
        weighted: the mean counts clients by their examples (FedProx); False is the simple mean (FOLB's comparison).
        cohort_size: clients in a round (K), uniform without replacement.

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """
    weights = (ByExamples(), DivideBySum()) if weighted else (DivideByParticipants(),)
    pieces = (Prox(mu), *weights, ServerSgd(server_lr))
    return compose(local or Sgd(), *selected(Uniform(cohort_size), also), *pieces, name="fedprox")


def fednova(
    local: Sgd | None = None,
    *,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedNova: updates per local step, ``u = tau_eff sum_b p_b Delta_b / tau_b``, so that unequal work does not bias.

    Args:
        cohort_size: clients in a round (K), uniform without replacement.

    Reference: Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated optimization",
    NeurIPS 2020.
    """
    pieces = (ByExamples(), DivideByLocalSteps(), ServerSgd(server_lr))
    return compose(local or Sgd(), *selected(Uniform(cohort_size), also), *pieces, name="fednova")


def _examples(wanted: bool) -> tuple[Piece, ...]:
    return (ByExamples(),) if wanted else ()
