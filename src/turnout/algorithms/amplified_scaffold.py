"""Amplified SCAFFOLD: control variates and amplified steps over periods, for clients that take part in cycles."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.local import PeriodicScaffold
from turnout.pieces.server_optimizer.sgd import Amplified
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def amplified_scaffold(
    local: Solver | None = None,
    *,
    period: int = 10,
    gamma: float = 1.5,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Correct local steps by control variates of periods of rounds, and amplify each period's progress (Amplified SCAFFOLD).

    Local steps descend ``g - c_k + c``, where g is a minibatch gradient, and c_k and c are constant over a period of P
    rounds. At its end c_k becomes the mean gradient of client k in the period, c the mean of all c_k, and the model
    moves gamma times as far as in the period. Use it if clients take part in cycles, so that the participants of one
    round are alike.

    The authors divide the local step size by gamma, so that gamma does not change the progress of a period: for a step
    size eta write ``Sgd(lr=eta / gamma)``. The recipe follows the authors' code. All available clients take part;
    ``also=(Uniform(S),)`` selects S of them, as the authors do.

    Args:
        local: local training; None is `Sgd` with its defaults.
        period: length P of a period, in rounds, >= 1; the length of the cycle in which clients take part, if it is
            known. The default is that of the authors' synthetic experiment.
        gamma: amplification, > 0. The default is that of the authors' synthetic experiment.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> amplified_scaffold()
        Algorithm('amplified_scaffold': AllAvailable() -> Sgd() -> PeriodicScaffold() -> DivideByParticipants() ->
        WeightedSum() -> Amplified())

    Reference: Crawshaw and Liu, "Federated learning under periodic client participation and heterogeneous data: a new
    communication-efficient algorithm and analysis", NeurIPS 2024.
    """
    pieces = (local or Sgd(), PeriodicScaffold(period), DivideByParticipants(), Amplified(period, gamma))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="amplified_scaffold")
