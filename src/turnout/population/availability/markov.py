"""Model clients as two-state Markov chains, with random access to any round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import refuse
from turnout.core.random import fold, stream, uniform
from turnout.population.availability.rates import RatedAvailability
from turnout.population.availability.renewal import RenewingAvailability, last_renewal

_JOIN_LIMIT = 1e-6


@dataclass(frozen=True)
class Markov(RatedAvailability, name="markov"):
    """Each client follows a stationary two-state Markov chain that is available in a fraction p_n of the rounds.

    The transition probabilities are p01 from absent to available, and p10 from available to absent::

        p01 = join,       p10 = join * (1 / p_n - 1)        if that is at most 1,
        p01 = p_n / (1 - p_n),   p10 = 1                    otherwise.

    Visits last 1/p10 rounds on average, absences 1/p01. The chain is stationary from the first round on.

    Attributes:
        join: the largest p01; 0.05 in the paper.

    The other options are those of `RatedAvailability`.

    Raises:
        ConfigurationError: if `join` is outside [1e-6, 1 - 1e-6], and as `RatedAvailability` does. At join = 1 and p_n
            = 1/2 a client would alternate deterministically after the first round.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Markov(mean=0.5, join=0.3).bind(num_clients=4)
        >>> [bound.available(np.arange(4), round).astype(int).tolist() for round in range(4)]
        [[1, 1, 1, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0]]

    Reference: Wang and Ji, ICLR 2024, appendix C.6.1.
    """

    join: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.join, float) or not _JOIN_LIMIT <= self.join <= 1 - _JOIN_LIMIT:
            raise refuse("join", given=self.join, needed=f"a probability between {_JOIN_LIMIT} and 1 - {_JOIN_LIMIT}")

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> RenewingAvailability:
        """Fit the pattern to N clients."""
        rates = self.client_rates(num_clients, label_counts, seed)
        state_key, renewal_key = stream("availability", seed), stream("availability renewal", seed)

        # Let c = 1 - p01 - p10, the correlation of consecutive rounds. A step of the chain has the same law as this one: with
        # probability |c| keep the state (c >= 0) or flip it (c < 0); otherwise renew it, that is draw it from Bernoulli(r)
        # independently of the previous state, with r = p_n if c >= 0 and r = (p01 - |c|) / (1 - |c|) if c < 0. The state in
        # round t is therefore the draw of the last renewal, flipped once for each later round if c < 0, and does not depend
        # on earlier rounds. Renewals have the rate 1 - |c|; see `last_renewal`.
        def at(clients: np.ndarray, rounds: np.ndarray) -> np.ndarray:
            p = rates[clients]
            with np.errstate(divide="ignore", over="ignore"):  # p = 0 is never, p = 1 always available
                p01 = np.minimum(self.join, p / (1.0 - p))
                p10 = np.minimum(self.join * (1.0 / p - 1.0), 1.0)
            correlation = 1.0 - p01 - p10
            hold = np.abs(correlation)
            renewed = np.where(correlation >= 0, p, (p01 - hold) / (1.0 - hold))
            when = last_renewal(renewal_key, clients, hold, rounds)
            state = uniform(fold(state_key, clients, when)) < renewed
            return state ^ ((correlation < 0) & ((rounds - when) % 2 == 1))

        return RenewingAvailability(num_clients, rates, at)
