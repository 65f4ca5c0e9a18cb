"""pFedMe: personal models as minimisers of Moreau envelopes, whose gradients train the shared one."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.local.pair_steps import MoreauSteps
from turnout.pieces.personalization.pair_models import MoreauModel
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def pfedme(
    local: Solver | None = None,
    *,
    proximal: float = 15.0,
    inner_steps: int = 5,
    inner_lr: float = 0.05,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """pFedMe: local steps descend ``lambda (w - theta_k)``, theta_k near the minimiser around w.

    The server takes the plain mean, as in the paper; the authors' code weighs clients by their examples.

    Args:
        proximal, inner_steps, inner_lr: lambda, K and the step size of theta_k, see `MoreauSteps`.
        cohort_size: clients in a round (S), uniform without replacement.
        server_lr: beta.

    Example:
        >>> pfedme()
        Algorithm('pfedme': Uniform() -> MoreauSteps() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        MoreauModel())

    Reference: Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes", NeurIPS 2020 (arXiv
    2006.08848).
    """
    steps = MoreauSteps.of(local or Sgd(), proximal=proximal, inner_steps=inner_steps, inner_lr=inner_lr)
    pieces = (steps, MoreauModel(), Uniform(cohort_size), DivideByParticipants(), ServerSgd(server_lr))
    return compose(*pieces, also=also, name="pfedme")
