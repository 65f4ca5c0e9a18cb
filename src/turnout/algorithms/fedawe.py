"""FedAWE: absent clients keep their model, and their next update counts once for every round missed."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.checks import positive
from turnout.pieces.aggregation import KeptModels
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.weighting import DivideByParticipants, Echo


@ALGORITHMS.register
def fedawe(
    local: Solver | None = None, *, global_lr: float = 1.0, max_norm: float | None = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FedAWE: ``x <- (1/B) sum_b (x_b + global_lr (t - tau_b) Delta_b)``, tau_b the round in which b last took part.

    Every client b keeps the model x_b of the last step that it took part in and trains from it. The server needs neither
    memory for each client nor participation rates.

    The authors' code does two things that the paper does not have: it clips the mean innovation, ``(1/B) sum_b (t - tau_b)
    Delta_b``, to a norm of 0.5, and its local step size is ``lr / sqrt(1 + t / 10)`` in round t. ``fedawe(Sgd(lr=
    InverseRoot(0.05, every=10)), max_norm=0.5)`` is the same. Where a step size changes by round, all clients of a round take
    that of the present round, whichever model they continue from.

    Args:
        global_lr: eta_g, the step size of updates.
        max_norm: the largest norm of the mean innovation, before `global_lr` multiplies it; None is no limit, as in the
            paper.

    Example:
        >>> fedawe()
        Algorithm('fedawe': AllAvailable() -> Sgd() -> Echo() -> DivideByParticipants() -> KeptModels() -> ServerSgd())

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client
    unavailability", NeurIPS 2024.
    """
    if max_norm is not None:
        positive("max_norm", max_norm)
    limit = None if max_norm is None else global_lr * max_norm
    pieces = (Echo(global_lr), DivideByParticipants(), KeptModels(limit))
    return compose(local or Sgd(), *pieces, also=also, name="fedawe")
