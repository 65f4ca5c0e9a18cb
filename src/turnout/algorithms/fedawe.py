"""FedAWE: absent clients keep their model, and their next update is multiplied by the number of rounds since."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.core.checks import positive
from turnout.pieces.aggregation import KeptModels
from turnout.pieces.weighting import DivideByParticipants, Echo


@ALGORITHMS.register
def fedawe(
    local: Solver | None = None,
    *,
    global_lr: float = 1.0,
    max_norm: float | None = None,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average local models, with updates multiplied by the rounds since their client's last participation (FedAWE).

    ``x <- (1/B) sum_b (x_b + global_lr (t - tau_b) Delta_b)``. Here x is the model, B is the number of participants,
    Delta_b is the update of client b, t is the present round, and tau_b is the round of its last participation. x_b is
    the model of the step after that, which client b keeps and from which it trains. Use it for clients with unknown and
    changing availability: the server needs neither memory for each client nor participation rates.

    Differences between the authors' code and the paper: the code clips the mean innovation,
    ``(1/B) sum_b (t - tau_b) Delta_b``, to a norm of 0.5, and its local step size is ``lr / sqrt(1 + t / 10)`` in round
    t. ``fedawe(Sgd(lr=InverseRoot(0.05, every=10)), max_norm=0.5)`` does the same. If the local step size changes by
    round, all participants use that of the present round, whichever model they continue from.

    Args:
        local: local training; None is `Sgd` with its defaults.
        global_lr: step size eta_g of updates, > 0.
        max_norm: largest norm of the mean innovation, before the factor `global_lr`, > 0; None means no limit, as in the
            paper.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Raises:
        ConfigurationError: if `global_lr` or `max_norm` is not positive.

    Example:
        >>> fedawe()
        Algorithm('fedawe': AllAvailable() -> Sgd() -> Echo() -> DivideByParticipants() -> KeptModels() -> ServerSgd())

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client
    unavailability", NeurIPS 2024.
    """
    if max_norm is not None:
        positive("max_norm", max_norm)
    limit = None if max_norm is None else global_lr * max_norm
    pieces = (local or Sgd(), Echo(global_lr), DivideByParticipants(), KeptModels(limit))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="fedawe")
