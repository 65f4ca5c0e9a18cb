"""Ditto: a personal model beside the shared one."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.personalization.ditto import Ditto
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def ditto(
    local: Solver | None = None,
    *,
    proximal: float = 0.1,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train a shared model by federated averaging, and a personal model near it at each client (Ditto).

    Client k minimizes ``F_k(v_k) + lambda/2 ||v_k - w||^2`` over its personal model v_k, where F_k is its loss and w is
    the shared model. The shared model is the plain mean of the participants' models.

    Args:
        local: local training; None is `Sgd` with its defaults.
        proximal: strength lambda of the proximal term, >= 0. Larger values keep personal models closer to the shared
            one; see `Ditto`.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> ditto()
        Algorithm('ditto': Uniform() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() -> Ditto())

    Reference: Li et al., "Ditto: fair and robust federated learning through personalization", ICML 2021.
    """
    pieces = (local or Sgd(), Ditto(proximal), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="ditto")
