"""Model the availability of phones: visits of random length, at rates that depend on the client and the hour of the day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.random import fold, generator, stream, uniform
from turnout.core.ranges import NotNegative, Probability
from turnout.population.availability.rates import TimedAvailability, rank_by_labels
from turnout.population.availability.renewal import RenewingAvailability, last_renewal

_TEN_MINUTES, _DAY = 600, 86_400


@dataclass(frozen=True)
class Diurnal(TimedAvailability, name="diurnal"):
    """Each client follows a two-state process whose rate depends on the time of day.

    In each round a client's state is renewed with probability r_n, and otherwise kept. A renewed state is "available" with
    probability ::

        q_n(t) = p_n (1 + a_n cos(2 pi (t / day - phi_n))),    a_n = min(amplitude, 1 / p_n - 1)

    with p_n = 0 for a fraction `never` of the clients and logit-normal for the others (``log(p / (1 - p))`` is normal), r_n
    log-normal, and the hour phi_n of its peak from a von Mises distribution. A client is available in a fraction p_n of the
    rounds. The default constants are fitted to 300 real phones (`Flash`, charging) by ``reproductions/availability/fit.py``.

    Attributes:
        median: median rate of the clients that are ever available.
        spread: standard deviation of ``log(p_n / (1 - p_n))``.
        never: fraction of clients that are never available.
        renewal: median of r_n in a round of ten minutes; in a round of s seconds it is ``1 - (1 - r_n)^(s / 600)``.
        renewal_spread: standard deviation of log r_n; r_n is at most 0.99.
        amplitude: amplitude of the daily variation of rates, 0 to 1.
        peak_hour: mean hour of the peaks, counted from the start of the run.
        peak_concentration: concentration kappa of the von Mises distribution of peaks; 0 is uniform.

    The other options are those of `TimedAvailability`; with `correlated_with_labels` the drawn rates are assigned to clients
    in the order of their rates by labels.

    Raises:
        ConfigurationError: if values are outside their ranges, or labels are missing.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Diurnal().bind(num_clients=1000)
        >>> [int(bound.available(np.arange(1000), 6 * hour).sum()) for hour in (9, 21)]  # rounds of ten minutes
        [184, 134]
    """

    median: Probability = 0.13
    spread: NotNegative = 0.97
    never: Probability = 0.01
    renewal: Probability = 0.088
    renewal_spread: NotNegative = 0.6
    amplitude: Probability = 0.78
    peak_hour: NotNegative = 9.0
    peak_concentration: NotNegative = 0.58

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("median", "renewal"):
            if getattr(self, name) in (0, 1):
                raise refuse(name, given=getattr(self, name), needed="a probability between 0 and 1")
        if self.never == 1:
            raise ConfigurationError("never: at 1 no client is ever available: write never=0.01")

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> RenewingAvailability:
        """Draw rates and peaks for N clients."""
        count("num_clients", num_clients)
        logit = np.log(self.median / (1 - self.median))
        with np.errstate(over="ignore"):  # with an extreme spread, rates are 0 or 1
            rates = 1 / (1 + np.exp(-logit - self.spread * generator("phone rates", seed).standard_normal(num_clients)))
        rates[uniform(fold(stream("phones never there", seed), np.arange(num_clients))) < self.never] = 0.0
        if self.correlated_with_labels is not None:
            rank = rank_by_labels(label_counts, num_clients, self.correlated_with_labels, seed)
            rates = np.sort(rates)[rank]
        mean_peak = 2 * np.pi * self.peak_hour / 24
        peaks = generator("phone peaks", seed).vonmises(
            (mean_peak + np.pi) % (2 * np.pi) - np.pi, self.peak_concentration, num_clients
        )
        spread = self.renewal_spread * generator("phone renewals", seed).standard_normal(num_clients)
        with np.errstate(over="ignore"):
            renewal = np.clip(self.renewal * np.exp(spread), 1e-12, 0.99)  # 1 - 1e-300 is 1, and would never renew
        hold = (1 - renewal) ** (self.seconds_per_round / _TEN_MINUTES)
        state_key, renewal_key = stream("availability", seed), stream("availability renewal", seed)

        def at(clients: np.ndarray, rounds: np.ndarray) -> np.ndarray:
            p = rates[clients]
            when = last_renewal(renewal_key, clients, hold[clients], rounds)
            with np.errstate(divide="ignore"):
                swing = np.minimum(self.amplitude, 1 / p - 1)
            angle = 2 * np.pi * (when * self.seconds_per_round % _DAY) / _DAY - peaks[clients]
            return uniform(fold(state_key, clients, when)) < p * (1 + swing * np.cos(angle))

        return RenewingAvailability(num_clients, rates, at)
