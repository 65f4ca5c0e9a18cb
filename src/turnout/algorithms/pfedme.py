"""pFedMe: personal models as minimizers of Moreau envelopes, whose gradients train the shared model."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local.pair_steps import MoreauSteps
from turnout.pieces.personalization.pair_models import MoreauModel
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def pfedme(
    local: Solver | None = None,
    *,
    proximal: float = 15.0,
    inner_steps: int = 5,
    inner_lr: float = 0.05,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train personal models near the shared one, which descends their Moreau envelopes (pFedMe).

    Local steps descend ``lambda (w - theta_k)``, where w is the local copy of the shared model, and the personal model
    theta_k approximates the minimizer of ``F_k(theta) + lambda/2 ||theta - w||^2`` with the client's loss F_k. The
    server averages w with equal weights, as in the paper; the authors' code weights clients by their number of
    examples.

    Args:
        local: local training; None is `Sgd` with its defaults.
        proximal: strength lambda of the proximal term, > 0; see `MoreauSteps`.
        inner_steps: number of steps on theta_k for each local step (K), >= 1.
        inner_lr: step size of theta_k, > 0.
        cohort_size: number or share of the clients of a round (S), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (beta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> pfedme()
        Algorithm('pfedme': Uniform() -> MoreauSteps() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        MoreauModel())

    Reference: Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes", NeurIPS 2020 (arXiv
    2006.08848).
    """
    steps = MoreauSteps.of(local or Sgd(), proximal=proximal, inner_steps=inner_steps, inner_lr=inner_lr)
    pieces = (steps, MoreauModel(), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="pfedme")
