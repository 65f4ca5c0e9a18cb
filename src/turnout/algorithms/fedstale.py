"""FedStale: mix fresh updates of participants with the last updates of all clients."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.aggregation import FedStale
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
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Mix an unbiased average of fresh updates with the mean of the last updates of all clients (FedStale).

    ``u = (1/N) sum_b (Delta_b - beta Y_b) / p_b + beta mean_N(Y)``. Here u is the direction of the server's step, N is
    the number of clients, Delta_b is the update of participant b, Y_b is the update that it sent before, p_b is its
    participation rate, and mean_N(Y) is the mean of the last updates of all clients.

    Args:
        local: local training; None is `Sgd` with its defaults.
        beta: share of stale updates, in [0, 1]: 0 is unbiased FedAvg, and 1 is FedVARP for unequal participation rates.
        learns_rates: whether to estimate ``1 / p`` by FedAU's omega. False takes the true participation rates, as the
            paper's analysis does.
        rates: participation rate p of each client, in (0, 1]; None takes those of the population.
        cutoff: largest length of FedAU's intervals, in rounds; see `Participation`.
        shares: share of each of the N clients in the objective, positive numbers that sum to 1; None means 1/N each.
            The authors' code uses shares of all examples, ``tuple(data.train.sizes / data.train.sizes.sum())``.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedstale()
        Algorithm('fedstale': AllAvailable() -> Sgd() -> KnownRates() -> DivideByClients() -> FedStale() -> ServerSgd())

    Reference: Rodio and Neglia, "FedStale: leveraging stale client updates in federated learning", ECAI 2024.
    """
    inverse = Participation(cutoff) if learns_rates else KnownRates(rates)
    pieces = (local or Sgd(), inverse, DivideByClients(), FedStale(beta, shares))
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedstale")
