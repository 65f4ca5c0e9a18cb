"""FedNu: select clients by their gradients."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.base import Selection
from turnout.core.checks import known_name
from turnout.pieces.local import StartGradient
from turnout.pieces.selection import ByAlignment, ByAlignmentAndInexactness, ByGradientNorm, WithReplacement
from turnout.pieces.weighting import ByExamples, DivideByParticipants, DivideBySum, SignOfAlignment


@ALGORITHMS.register
def fednu(
    local: Solver | None = None,
    *,
    by: str = "alignment",
    signs: bool = False,
    psi: float = 1.0,
    cohort_size: Size = 10,
    data_weighted: bool = False,
    scores_by_examples: bool = True,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Select clients with probabilities that favor useful gradients, and average their updates (FedNu, Algorithm 1).

    The K draws are independent and with replacement; a client that is drawn twice counts twice.

    Args:
        local: local training; None is `Sgd` with its defaults.
        by: score to which probabilities are proportional: ``"alignment"`` with the global gradient (eq. 7, naive
            algorithm 1: all clients send gradients), gradient ``"norm"`` (naive algorithm 2: all clients send one
            number), ``"alignment_and_inexactness"`` (eq. 16), or ``"uniform"``.
        signs: whether to subtract updates that point uphill (eq. 5); it needs the gradients of all clients.
        psi: penalty on inexactness of eq. 16, >= 0.
        cohort_size: number of draws in a round (K), >= 1.
        data_weighted: whether to weight clients by their number of examples (section II-A): in the global gradient and
            in the probabilities, or in the average if these are uniform.
        scores_by_examples: whether `data_weighted` applies to the probabilities. False leaves the number of examples
            out of these, as in eq. 7 and 16, so that it matters in the global gradient alone.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fednu()
        Algorithm('fednu': ByAlignment() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021, section III.
    """
    distributions: dict[str, Selection] = {
        "alignment": ByAlignment(cohort_size, data_weighted, scores_by_examples),
        "norm": ByGradientNorm(cohort_size, data_weighted, scores_by_examples),
        "alignment_and_inexactness": ByAlignmentAndInexactness(psi, cohort_size, data_weighted, scores_by_examples),
        "uniform": WithReplacement(cohort_size),
    }
    selection = distributions[known_name("value of by", by, distributions)]
    weights = (StartGradient(), SignOfAlignment(data_weighted)) if signs else ()
    mean = (ByExamples(), DivideBySum()) if data_weighted and by == "uniform" else (DivideByParticipants(),)
    return compose(local or Sgd(), selection, *weights, *mean, server_lr=server_lr, also=also, name="fednu")
