"""FedAWE: clients who were away go on from the model that they kept, and their update counts for every round missed.

Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client unavailability",
NeurIPS 2024.
"""

from __future__ import annotations

from turnout.aggregation import KeptModels
from turnout.algorithms.compose import compose
from turnout.local import Sgd
from turnout.slots import Piece
from turnout.slots.algorithm import Algorithm
from turnout.weighting import DivideByParticipants, Echo


def fedawe(local: Sgd | None = None, *, global_lr: float = 1.0, also: tuple[Piece, ...] = ()) -> Algorithm:
    """FedAWE: ``x <- (1/B) sum_b (x_b + global_lr (t - tau_b) Delta_b)``, tau_b the round in which b last took part.

    Every client b keeps the model x_b that it last helped to make and trains from it: nothing at the server grows with N, and
    no rate is known or learnt.

    Where a step size changes by round, a client takes that of the round in which it got its model.

    Args:
        global_lr: eta_g, the step size of updates.
    """
    return compose(local or Sgd(), Echo(global_lr), DivideByParticipants(), KeptModels(), also=also, name="fedawe")
