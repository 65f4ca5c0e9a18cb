"""SCAFFOLD: correct the drift of local steps by control variates."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import Scaffold
from turnout.pieces.local.scaffold import Initial, Option
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def scaffold(
    local: Solver | None = None,
    *,
    option: Option = "II",
    initial: Initial = "zeros",
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Correct the drift of local steps by control variates, and average the updates (SCAFFOLD, Algorithm 1).

    Local steps of client k descend ``g - c_k + c``. Here g is a minibatch gradient, c_k is the control variate of the
    client, which estimates its gradient, and c is the mean of all control variates. Updates are averaged with equal
    weights, and no parameter is personal. Use it if local objectives differ and clients take many local steps.

    Args:
        local: local training; None is `Sgd` with its defaults.
        option: update of the control variates, ``"I"`` (full gradient at the received model) or ``"II"`` (mean gradient
            of the local steps); see `Scaffold`.
        initial: initial control variates, ``"zeros"`` (as in the paper) or ``"gradients"``; see `Scaffold`.
        cohort_size: number or share of the clients of a round (S), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> scaffold()
        Algorithm('scaffold': Uniform() -> Sgd() -> Scaffold() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())

    Reference: Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020.
    """
    pieces = (local or Sgd(), Scaffold(option, initial), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="scaffold")
