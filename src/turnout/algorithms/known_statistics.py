"""Average updates divided by true participation rates."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import DivideByClients, KnownRates


@ALGORITHMS.register
def known_statistics(
    local: Solver | None = None,
    *,
    rates: tuple[float, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates divided by their client's true participation rate (FedAU, baseline "known participation statistics").

    ``u = (1/N) sum_b Delta_b / p_b``, where u is the direction of the server's step, N is the number of clients,
    Delta_b is the update of participant b, and p_b is its participation rate. The average is unbiased, but rates are
    rarely known in practice.

    Args:
        local: local training; None is `Sgd` with its defaults.
        rates: participation rate p of each of the N clients, in (0, 1]. None takes those of the population.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> known_statistics()
        Algorithm('known_statistics': AllAvailable() -> Sgd() -> KnownRates() -> DivideByClients() -> WeightedSum() ->
        ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """
    pieces = (local or Sgd(), KnownRates(rates), DivideByClients())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="known_statistics")
