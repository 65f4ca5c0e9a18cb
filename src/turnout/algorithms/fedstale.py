"""FedStale: fresh updates of participants, mixed with a share of the last updates of all clients."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import FedStale
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients, KnownRates, Participation


@ALGORITHMS.register
def fedstale(
    local: Solver | None = None,
    *,
    beta: float = 0.5,
    learns_rates: bool = False,
    rates: tuple[float, ...] | None = None,
    cutoff: int | None = 50,
    shares: tuple[float, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedStale: ``u = (1/N) sum_b (Delta_b - beta Y_b) / p_b + beta mean_N(Y)``, Y the last update of each client.

    Args:
        beta: the share of stale updates, 0 (unbiased FedAvg) to 1 (FedVARP for unequal rates).
        learns_rates: False takes the true participation rates, as the paper's analysis does; True takes FedAU's omega, learnt
            from participation, in place of 1 / p.
        rates: p for each client; None takes those of the population.
        cutoff: of FedAU's intervals, see `Participation`.
        shares: the clients' shares of the objective, in place of 1/N each; the authors' code has n_k / n, shares of all
            examples, ``tuple(data.train.sizes / data.train.sizes.sum())``.

    Example:
        >>> fedstale()
        Algorithm('fedstale': AllAvailable() -> Sgd() -> KnownRates() -> DivideByClients() -> FedStale() -> ServerSgd())

    Reference: Rodio and Neglia, "FedStale: leveraging stale client updates in federated learning", ECAI 2024.
    """
    inverse = Participation(cutoff) if learns_rates else KnownRates(rates)
    pieces = (inverse, DivideByClients(), FedStale(beta, shares), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="fedstale")
