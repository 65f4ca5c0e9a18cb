"""FOCUS: the sum of all clients' last gradients, tracked by their changes."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation.tracked_sum import TrackedSum
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.local.tracking import GradientTracking
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients


@Defaults(local={"lr": 0.01})
@ALGORITHMS.register
def focus(
    local: Solver | None = None, *, server_lr: float | Schedule | None = None, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """FOCUS (push-pull): ``x <- x - server_lr sum_n G_n``, G_n the last gradient of each client at the end of its round.

    It converges exactly at a constant step size, whoever takes part, where gradients are of all examples. Step sizes are
    small: the sum is N times the mean.

    Args:
        server_lr: None is the clients' step size, as in the paper.

    Example:
        >>> focus()
        Algorithm('focus': AllAvailable() -> Sgd(lr=0.01) -> GradientTracking() -> DivideByClients() -> TrackedSum() ->
        ServerSgd(lr=0.01))

    Reference: Ying, Li and Yang, "Exact and linear convergence for federated learning under arbitrary client
    participation is attainable", NeurIPS 2025 (arXiv 2503.20117).
    """
    local = local or Sgd(lr=0.01)
    lr = local.lr if server_lr is None else server_lr
    pieces = (GradientTracking(), TrackedSum(), DivideByClients(), ServerSgd(lr))
    return compose(local, *pieces, also=also, name="focus")
