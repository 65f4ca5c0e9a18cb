"""Select the available clients that rank first by a record of past rounds (FedLaAvg, F3AST)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import RecordingSelection, SmoothedRates
from turnout.core.candidates import Candidates
from turnout.core.types import Federation, Report, State
from turnout.pieces.selection.draws import first_available, lowest
from turnout.pieces.selection.fixed_size import FixedSize

_SMALL = 1024


@dataclass(frozen=True)
class ByRecord(FixedSize, RecordingSelection):
    """Select the `cohort_size` available clients of lowest rank; all if fewer are available. Ties are broken at random.

    Clients that never took part may have the lowest rank. While enough of them are available, they are drawn as by
    `Uniform`, and the cost of a round depends on the cohort alone. Otherwise, after an eighth of all clients was asked
    for its availability, all N clients are asked and ranked. In federations of at most 1,024 clients, all clients are
    always asked and ranked.
    """

    @abstractmethod
    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return the rank of each of `clients` (int64 ``[n]``), ``[n]``; the lowest rank is selected first."""

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients whose rank is the lowest possible, bool ``[n]``; by default, all False.

        It is called with a few clients at a time.
        """
        return np.zeros(len(clients), dtype=bool)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        size = self.size(candidates.num_clients)
        if candidates.num_clients > _SMALL:
            available = candidates.available
            new = replace(
                candidates, available=lambda clients: available(clients) & self.new(clients, candidates.record)
            )
            cohort = first_available(new, size, candidates.num_clients // 8)
            if len(cohort) == size:
                return np.sort(cohort)
        everyone = candidates.everyone()
        rank = self.rank(everyone, candidates.round, candidates.record)
        return lowest(candidates, everyone, rank, size, "selection")


@dataclass(frozen=True)
class LeastServed(SmoothedRates, ByRecord, name="least_served"):
    """Select the available clients with the largest share of the objective relative to their participation rate (F3AST).

    The cohort is the `cohort_size` clients with the largest ``p_k / r_k``. Here p_k is the share of client k in the
    objective, and r_k is an exponential average of its participation: ``r_k <- (1 - beta) r_k + beta 1_k`` in each
    round, where 1_k is 1 if the client takes part, and 0 otherwise, from ``r_k = 1 / N``. Ties are broken at random.

    With the weights ``p_k / r_k`` (`BySmoothedRate`) the step is unbiased, and the choice of cohorts adds a variance
    that grows with ``H(r) = sum_k p_k^2 / r_k``. Its derivative with respect to r_k is ``-(p_k / r_k)^2``, so these
    clients reduce it most.

    With `shares`, each round looks up and ranks all N clients.

    Args:
        cohort_size: number of clients in a round (K), from 1 to N.
        beta: smoothing factor, in (0, 1]. Larger values follow recent rounds more closely.
        shares: share p of each of the N clients in the objective, positive numbers that sum to 1. None means 1/N each.

    State: ``rate [N]``, r after the round ``last``, float64; ``last [N]``, the client's last round, -1 before the
    first, int64.

    Raises:
        ConfigurationError: if `cohort_size` or `beta` is out of range, or if `shares` are not positive numbers that sum
            to 1.

    Example:
        >>> from turnout.base.trial import select
        >>> select(LeastServed(cohort_size=3))
        [1, 65, 76]

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and
    time-varying communication constraints", IEEE JSTSP 2023.
    """

    client_rows = ("rate", "last")

    beta: float = 0.01
    shares: tuple[float, ...] | None = None

    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return ``r_k / p_k``, float64 ``[n]``."""
        return self.rate_before(clients, version, record) / self.share(clients, len(record["rate"]))

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients that never took part, whose r is the lowest, if all p are equal."""
        if self.shares is not None or self.beta == 1:
            return super().new(clients, record)
        return record["last"].numpy()[clients] < 0

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the participants of this step."""
        self.note(report.client, version, state)
        return state


@dataclass(frozen=True)
class LongestAbsent(ByRecord, name="longest_absent"):
    """Select the available clients whose last participation is longest ago (FedLaAvg).

    Clients that never took part come first. Ties are broken at random.

    Args:
        cohort_size: number of clients in a round (K), from 1 to the number of clients.

    State: ``last [N]``, the round of each client's last participation, -1 before its first, int64.

    Raises:
        ConfigurationError: if `cohort_size` is not positive or exceeds the number of clients.

    Example:
        >>> from turnout.base.trial import select
        >>> select(LongestAbsent(cohort_size=3))
        [1, 65, 76]

    Reference: Yan et al., "Federated optimization under intermittent client availability", INFORMS Journal on Computing
    2024.
    """

    client_rows = ("last",)

    def init(self, federation: Federation) -> State:
        """Return the record of no participation."""
        return {"last": torch.full((federation.num_clients,), -1, dtype=torch.int64)}

    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return the round of each client's last participation, int64 ``[n]``."""
        return record["last"].numpy()[clients]

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients that never took part, bool ``[n]``."""
        return record["last"].numpy()[clients] < 0

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the participants of this step."""
        state["last"][torch.from_numpy(report.client)] = version
        return state
