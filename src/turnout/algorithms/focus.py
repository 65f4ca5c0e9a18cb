"""FOCUS: descend the sum of the last gradients of all clients, tracked by their changes."""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation.running_sums import TrackedSum
from turnout.pieces.local.tracking import GradientTracking
from turnout.pieces.weighting import DivideByClients


@Defaults(local={"lr": 0.01})
@ALGORITHMS.register
def focus(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule | None = None,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Descend the sum of the last gradients of all clients, tracked by their changes (FOCUS, push-pull).

    ``x <- x - server_lr sum_n G_n``, where x is the model, and G_n is the gradient of client n at the end of its last
    round. With full-batch gradients it converges exactly at a constant step size, under arbitrary participation. Step
    sizes are small, because the sum is N times the mean over the N clients.

    Args:
        local: local training; None is `Sgd` with the step size 0.01.
        server_lr: step size of the server, > 0, or a `Schedule` of it by round; None is the step size of local
            training, as in the paper.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> focus()
        Algorithm('focus': AllAvailable() -> Sgd(lr=0.01) -> GradientTracking() -> DivideByClients() -> TrackedSum() ->
        ServerSgd(lr=0.01))

    Reference: Ying, Li and Yang, "Exact and linear convergence for federated learning under arbitrary client
    participation is attainable", NeurIPS 2025 (arXiv 2503.20117).
    """
    local = local or Sgd(lr=0.01)
    lr = local.lr if server_lr is None else server_lr
    pieces = (local, GradientTracking(), TrackedSum(), DivideByClients())
    return compose(*pieces, server_lr=lr, cohort_size=cohort_size, also=also, name="focus")
