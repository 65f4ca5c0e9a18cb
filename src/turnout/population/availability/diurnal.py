"""Clients who come and go like phones: for a while at a time, more at some hours than at others, some hardly ever."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, count, not_negative, probability, refuse
from turnout.core.random import fold, generator, stream, uniform
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.availability.rates import LabelCorrelation, correlation, rank_by_labels
from turnout.population.availability.renewal import last_renewal

_TEN_MINUTES, _DAY = 600, 86_400


@dataclass(frozen=True)
class Diurnal(Availability, name="diurnal"):
    """Each client comes and goes by a two-state process whose rate follows the time of day.

    With probability r_n a round renews a client's state, and otherwise keeps it; a renewed state is there with probability ::

        q_n(t) = p_n (1 + a_n cos(2 pi (t / day - phi_n))),    a_n = min(amplitude, 1 / p_n - 1)

    with p_n = 0 for a fraction `never` of the clients and logit-normal for the others (``log(p / (1 - p))`` is normal), r_n
    log-normal, and the hour phi_n of its peak from a von Mises distribution. A client is there a fraction p_n of the rounds.
    The constants are fitted to 300 real phones (`Flash`, charging) by ``reproductions/availability/fit.py``.

    Attributes:
        median: median rate of the clients who are ever there.
        spread: standard deviation of ``log(p_n / (1 - p_n))``.
        never: fraction of clients who are never there.
        renewal: the median of r_n in a round of ten minutes; in one of s seconds it is ``1 - (1 - r_n)^(s / 600)``.
        renewal_spread: standard deviation of log r_n; r_n is at most 0.99.
        amplitude: how strongly rates follow the day, 0 to 1.
        peak_hour: the hour, after that in which the run begins, around which peaks lie.
        peak_concentration: how alike peaks are: the von Mises distribution's kappa; at 0 they are uniform.
        seconds_per_round: how long a round lasts. Where the population has a speed, it lasts as long on its clock.
        correlated_with_labels: None draws rates whatever clients hold. A number is the concentration alpha_p of
            `label_correlated_rates`, several are its q, one a class: the lower a client's rate by its labels,
            the lower is the drawn rate it gets.

    Raises:
        ConfigurationError: for values outside their ranges, or labels that are needed and missing.
    """

    median: float = 0.13
    spread: float = 0.97
    never: float = 0.01
    renewal: float = 0.088
    renewal_spread: float = 0.6
    amplitude: float = 0.78
    peak_hour: float = 9.0
    peak_concentration: float = 0.58
    seconds_per_round: int = _TEN_MINUTES
    correlated_with_labels: LabelCorrelation | None = None

    def __post_init__(self) -> None:
        for name in ("median", "never", "renewal", "amplitude"):
            probability(name, getattr(self, name))
        for name in ("median", "renewal"):
            if getattr(self, name) in (0, 1):
                raise refuse(name, given=getattr(self, name), needed="a probability between 0 and 1")
        if self.never == 1:
            raise ConfigurationError("never: at 1 nobody is ever there: write never=0.01")
        for name in ("spread", "renewal_spread", "peak_concentration", "peak_hour"):
            not_negative(name, getattr(self, name))
        count("seconds_per_round", self.seconds_per_round, instead="A round lasts whole seconds")
        alpha = correlation("correlated_with_labels", self.correlated_with_labels)
        object.__setattr__(self, "correlated_with_labels", alpha)

    @property
    def round_seconds(self) -> float:
        """Seconds that a round lasts."""
        return self.seconds_per_round

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundDiurnal:
        """Draw rates and peaks for N clients."""
        count("num_clients", num_clients)
        logit = np.log(self.median / (1 - self.median))
        with np.errstate(over="ignore"):  # of a spread beyond all bounds, rates are 0 or 1
            rates = 1 / (1 + np.exp(-logit - self.spread * generator("phone rates", seed).standard_normal(num_clients)))
        rates[uniform(fold(stream("phones never there", seed), np.arange(num_clients))) < self.never] = 0.0
        if self.correlated_with_labels is not None:
            rank = rank_by_labels(label_counts, num_clients, self.correlated_with_labels, seed)
            rates = np.sort(rates)[rank]
        rates.setflags(write=False)
        mean_peak = 2 * np.pi * self.peak_hour / 24
        peaks = generator("phone peaks", seed).vonmises(
            (mean_peak + np.pi) % (2 * np.pi) - np.pi, self.peak_concentration, num_clients
        )
        spread = self.renewal_spread * generator("phone renewals", seed).standard_normal(num_clients)
        with np.errstate(over="ignore"):
            renewal = np.clip(self.renewal * np.exp(spread), 1e-12, 0.99)  # 1 - 1e-300 is 1, and would never renew
        hold = (1 - renewal) ** (self.seconds_per_round / _TEN_MINUTES)
        keys = stream("availability", seed), stream("availability renewal", seed)
        return BoundDiurnal(num_clients, rates, peaks, self.amplitude, hold, self.seconds_per_round, *keys)


@dataclass(frozen=True, eq=False)
class BoundDiurnal(BoundAvailability):
    """`Diurnal` for N clients, with random access to any round.

    Attributes:
        peaks: 2 pi phi_n, radians, ``[N]``.
        amplitude: how strongly rates follow the day.
        hold: the probability that a state is kept from one round to the next, ``[N]``.
        seconds_per_round: how long a round lasts.
        state_key, renewal_key: of the random numbers.
    """

    rates: np.ndarray
    peaks: np.ndarray
    amplitude: float
    hold: np.ndarray
    seconds_per_round: int
    state_key: int
    renewal_key: int

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return whether each of `clients` is there in `round`, bool ``[B]``."""
        p = self.rates[clients]
        when = last_renewal(self.renewal_key, clients, self.hold[clients], round)
        with np.errstate(divide="ignore"):
            swing = np.minimum(self.amplitude, 1 / p - 1)
        angle = 2 * np.pi * (when * self.seconds_per_round % _DAY) / _DAY - self.peaks[clients]
        return uniform(fold(self.state_key, clients, when)) < p * (1 + swing * np.cos(angle))
