"""FedProx: federated averaging with a proximal term."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import Prox
from turnout.pieces.weighting import ByExamples, DivideByParticipants, DivideBySum


@ALGORITHMS.register
def fedprox(
    local: Solver | None = None,
    *,
    mu: float = 0.01,
    weighted: bool = True,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates of local training with a proximal term, which limits the drift of clients (FedProx).

    Local steps of client k descend ``F_k(w) + mu/2 ||w - w^t||^2``, where F_k is its loss, and w^t is the received
    model.

    Args:
        local: local training; None is `Sgd` with its defaults.
        mu: strength of the proximal term, >= 0; 0 is federated averaging over a uniform cohort.
        weighted: whether to weight clients by their number of examples (FedProx). False takes the plain mean (FOLB's
            comparison).
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedprox()
        Algorithm('fedprox': Uniform() -> Sgd() -> Prox() -> ByExamples() -> DivideBySum() -> WeightedSum() ->
        ServerSgd())

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """
    weights = (ByExamples(), DivideBySum()) if weighted else (DivideByParticipants(),)
    pieces = (local or Sgd(), Prox(mu), *weights)
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedprox")
