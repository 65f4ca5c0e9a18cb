"""FedNu: draw clients by their gradients."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.checks import known_name
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece, Selection
from turnout.pieces.local import Sgd, Solver, StartGradient
from turnout.pieces.selection import ByAlignment, ByAlignmentAndInexactness, ByGradientNorm, WithReplacement
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideByParticipants, DivideBySum, SignOfAlignment


@ALGORITHMS.register
def fednu(
    local: Solver | None = None,
    *,
    by: str = "alignment",
    signs: bool = False,
    psi: float = 1.0,
    cohort_size: int = 10,
    data_weighted: bool = False,
    scores_by_examples: bool = True,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedNu (Algorithm 1): the mean over K draws with replacement from a distribution that favours useful clients.

    Args:
        by: the score that probabilities are proportional to: ``"alignment"`` (eq. 7, naive algorithm 1: all send gradients),
            ``"norm"`` (naive algorithm 2: all send one number), ``"alignment_and_inexactness"`` (eq. 16) or ``"uniform"``.
        signs: subtract updates that point uphill (eq. 5); needs the gradients of all clients.
        psi: of eq. 16.
        cohort_size: draws in a round (K).
        data_weighted: weigh clients by their examples (section II-A): in ``grad f`` and in the probabilities, or in the mean
            where these are uniform.
        scores_by_examples: with `data_weighted`, False leaves the factor n_k out of the probabilities, as in eq. 7 and
            16: examples then count in ``grad f`` alone.

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
    selection = distributions[known_name("by", by, distributions)]
    weights = (StartGradient(), SignOfAlignment(data_weighted)) if signs else ()
    mean = (ByExamples(), DivideBySum()) if data_weighted and by == "uniform" else (DivideByParticipants(),)
    pieces = (*weights, *mean, ServerSgd(server_lr))
    return compose(local or Sgd(), selection, *pieces, also=also, name="fednu")
