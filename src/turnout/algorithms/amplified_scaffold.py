"""Amplified SCAFFOLD: for clients who come in turns, control variates and long steps of whole periods."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import PeriodicScaffold, Sgd, Solver
from turnout.pieces.server_optimizer.amplified import Amplified
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def amplified_scaffold(
    local: Solver | None = None, *, period: int = 10, gamma: float = 1.5, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Amplified SCAFFOLD: local steps descend ``g - c_k + c``; c_k, c and long steps of the server are those of periods.

    After P rounds c_k is the mean gradient of client k in them, c the mean of all c_k, and the model goes gamma times as far
    as these rounds took it. The authors divide the local step size by gamma, so that gamma does not change how far a period
    goes: for a step size eta write ``Sgd(lr=eta / gamma)``.

    Written after the authors' code. All available clients take part; ``also=(Uniform(S),)`` draws S of them, as they do.

    Args:
        period: P, in rounds; the length of the cycle in which clients come, where it is known.
        gamma: the amplification; 1.5 and 10 rounds are what the authors' synthetic run has.

    Example:
        >>> amplified_scaffold()
        Algorithm('amplified_scaffold': AllAvailable() -> Sgd() -> PeriodicScaffold() -> DivideByParticipants() ->
        WeightedSum() -> Amplified())

    Reference: Crawshaw and Liu, "Federated learning under periodic client participation and heterogeneous data: a new
    communication-efficient algorithm and analysis", NeurIPS 2024.
    """
    pieces = (PeriodicScaffold(period), DivideByParticipants(), Amplified(period, gamma))
    return compose(local or Sgd(), *pieces, also=also, name="amplified_scaffold")
