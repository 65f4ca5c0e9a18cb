"""Differential privacy for clients: a sum of clipped updates, and Gaussian noise of the server."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from turnout.aggregation.private_fit import (
    check_coins,
    check_divisor,
    check_fixed_size,
    check_sampling,
    check_sums,
    check_weights,
)
from turnout.core.checks import ConfigurationError, count, not_negative, positive, refuse
from turnout.core.types import Federation, Report, State
from turnout.privacy.accounting import Release, Sampling
from turnout.privacy.correlation import Correlation, Independent
from turnout.privacy.noise import gaussian
from turnout.slots import Aggregation, ParticipationLimit, Slots, Weights

_CORRELATIONS = "Independent(), BandedSquareRoot() or BufferedToeplitz()"


@dataclass(frozen=True)
class PrivateSum(Aggregation):
    """Clip what every client adds, sum, and add noise (DP-FedAvg): the model says little about any one client.

    ::

        u = (1/D) (sum_b clip(D w_b Delta_b, C) + z C y_t),    clip(v, C) = v min(1, C / ||v||)

    w are the weights of the chain, D is N where they are divided by N (FedAU) and `cohort` otherwise, y_t is Gaussian
    noise of deviation 1 in each of P places, or a correlation of it over rounds. The server clips the weighted update, so one
    client adds at most C whatever it sends and however FedAU weighs it. `turnout.privacy.epsilon` says what it costs,
    and so does every row of the table of rounds; no run begins that would exceed `budget`.

    Weights may depend on who took part when, which is public, and on the client's own report; not on what others hold.

    Args:
        norm: C, in the length of an update; with `quantile`, the first.
        noise_multiplier: z; 0 clips only.
        cohort: D, the reports of a step that are expected; None where the chain divides by N.
        correlation: of the noise over rounds. Other than `Independent`, it needs `rounds`.
        rounds: of the whole run, for which a correlation is made.
        separation: least number of rounds from one participation of a client to its next (b), which the server enforces:
            nobody is chosen earlier, and an earlier report is dropped.
        most: participations of a client at most (k), enforced likewise; None is what `separation` leaves room for.
        sampling_rate: of `Poisson`, where the privacy that sampling adds is to be counted. That needs clients who are all
            there in every round, for who comes when it likes is not sampled by the server, and weights that are divided
            by N, for how many were drawn is private, too. Neighbours then differ by one client.
        sampled_from: N, where the privacy is to be counted that ``Uniform(cohort)`` adds, which draws equally many of all
            clients without replacement. It needs clients as `sampling_rate` does, and updates that do not depend on the
            rounds in which a client was drawn before. Neighbours then differ in the data of one client, whatever these are,
            so that the sum moves by up to 2 C: without sampling and for one client put to zero it would be C.
        quantile: gamma; C moves so that this share of updates is not clipped, ``C <- C exp(-rate (b - gamma))``, b the noised
            share. None leaves C as it is.
        quantile_rate: of that, eta_C.
        count_deviation: of the noise in the count behind b; None is a twentieth of D, as in the paper. Updates then have the
            noise ``(z^-2 - (2 count_deviation)^-2)^(-1/2)``, so that both together cost what z says.
        budget: the epsilon that a run must not exceed; None only counts.
        delta: of epsilon, below 1/N.

    State: ``norm []``, float64; ``releases []``, int64; what a correlation remembers.

    Raises:
        ConfigurationError: for numbers out of range, and for algorithms of which no sum like this is all they need, with the
            reason.

    References: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018; Andrew et al.,
    "Differentially private learning with adaptive clipping", NeurIPS 2021, Algorithm 1.
    """

    norm: float = 1.0
    noise_multiplier: float = 1.0
    cohort: int | None = None
    correlation: Correlation = field(default_factory=Independent)
    rounds: int | None = None
    separation: int = 1
    most: int | None = None
    sampling_rate: float | None = None
    sampled_from: int | None = None
    quantile: float | None = None
    quantile_rate: float = 0.2
    count_deviation: float | None = None
    budget: float | None = None
    delta: float = 1e-5

    acts_alone: ClassVar[bool] = True  # the noise of a round is a link of a chain, which goes on in an empty one

    def __post_init__(self) -> None:
        positive("norm", self.norm)
        not_negative("noise_multiplier", self.noise_multiplier)
        positive("quantile_rate", self.quantile_rate)
        for name in ("cohort", "rounds", "most", "sampled_from"):
            if getattr(self, name) is not None:
                count(name, getattr(self, name))
        count("separation", self.separation)
        for name in ("budget", "count_deviation"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("delta", "quantile", "sampling_rate"):
            if (given := getattr(self, name)) is not None and not 0 < given < 1:
                raise refuse(name, given=given, needed="a number between 0 and 1")
        if not isinstance(self.correlation, Correlation):
            raise refuse("correlation", given=self.correlation, needed=_CORRELATIONS)
        self._check_together()

    def _check_together(self) -> None:
        """Refuse options that mean nothing together."""
        correlated = not isinstance(self.correlation, Independent)
        if correlated and self.rounds is None:
            raise ConfigurationError(
                f"{type(self.correlation).__name__} is made for a number of rounds: write rounds=500, as the run has"
            )
        for name in ("quantile", "sampling_rate", "sampled_from"):
            if correlated and getattr(self, name) is not None:
                raise ConfigurationError(
                    f"{name} goes with independent noise alone: of correlated noise, the sensitivity is that of a whole run "
                    "with one norm, and sampling adds nothing that this package could count"
                )
        limited = self.separation > 1 or self.most is not None
        check_sampling(self.sampling_rate, self.sampled_from, self.cohort, limited)
        if self.sampling_rate is not None and self.quantile is not None:
            raise ConfigurationError(
                "quantile: who was drawn by a coin is private, and so is the share that is not clipped"
            )
        if self.cohort:
            self._update_multiplier(self.cohort)

    def fits(self, algorithm: Slots) -> None:
        """Refuse algorithms that need more than a sum to which each client adds what depends on its own data."""
        check_sums(algorithm)
        check_weights(algorithm)
        check_divisor(algorithm, self.cohort)
        if self.sampling_rate is not None:
            check_coins(algorithm, self.sampling_rate)
        if self.sampled_from is not None:
            check_fixed_size(algorithm, self.cohort)

    @property
    def limit(self) -> ParticipationLimit:  # narrower than the base class: there is always one
        """Say how often the server lets a client take part."""
        return ParticipationLimit(self.separation, self.most)

    def release(self) -> Release:
        """Return what the accountant has to know."""
        column = None
        if not isinstance(self.correlation, Independent):
            assert self.rounds is not None
            column = tuple(self.correlation.coefficients(self.rounds, self.separation, self.most).tolist())
        rate: float | None = self.sampling_rate
        sampling: Sampling = "poisson"
        if self.sampled_from is not None:
            assert self.cohort is not None
            rate, sampling = self.cohort / self.sampled_from, "fixed_size"
        return Release(self.noise_multiplier, column, self.separation, self.most, rate, sampling)

    def init(self, federation: Federation) -> State:
        """Return the first norm, and no noise yet.

        Raises:
            ConfigurationError: where N is so small that the count leaves no noise to spend on the updates, or is another than
                `sampled_from`.
        """
        if self.sampled_from not in (None, federation.num_clients):
            raise ConfigurationError(
                f"sampled_from: got {self.sampled_from}, and there are {federation.num_clients} clients to draw from: write "
                f"sampled_from={federation.num_clients}"
            )
        self._update_multiplier(self._divisor(federation))
        kept = self.correlation.init((federation.num_params,), *self._plan)
        kept = {
            name: value.to(federation.device, federation.dtype) if value.dim() else value
            for name, value in kept.items()
        }
        first = torch.tensor(self.norm, dtype=torch.float64)
        return {"norm": first, "releases": torch.tensor(0), **kept}

    @property
    def _plan(self) -> tuple[int, int, int | None]:
        """Return the rounds, separation and participations that a correlation is made for."""
        return self.rounds or 1, self.separation, self.most

    def apply(
        self, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return the noised direction, and the state after it; in an empty round of independent noise nothing is released."""
        if not len(report) and isinstance(self.correlation, Independent):
            return torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device), state
        divisor, norm, after = self._divisor(federation), float(state["norm"]), dict(state)
        lengths = divisor * weights.abs() * report.updates.norms()
        kept = torch.where(lengths > norm, norm / lengths, 1.0)
        total = report.updates.weighted_sum(weights * kept)
        release = int(state["releases"])
        after["releases"] = torch.tensor(release + 1)
        if self.noise_multiplier:
            noise, after = self._noise(release, after, federation)
            total += noise.double() * self._update_multiplier(divisor) * norm / divisor
        if self.quantile is not None and len(report):
            after["norm"] = state["norm"] * self._moved(lengths <= norm, divisor, release, federation)
        return total.to(federation.dtype), after

    def _divisor(self, federation: Federation) -> int:
        """D."""
        return self.cohort or federation.num_clients

    def _noise(self, release: int, state: State, federation: Federation) -> tuple[torch.Tensor, State]:
        """The noise of a release, ``[P]``, deviation 1, and what is remembered of it."""
        drawn = gaussian("noise of the model", federation, release, federation.num_params)
        remembered = {name: value for name, value in state.items() if name not in ("norm", "releases")}
        noise, remembered = self.correlation.next(drawn, remembered, *self._plan)
        return noise, state | remembered

    def _update_multiplier(self, divisor: int) -> float:
        """The noise of the updates over C, so that they and the count together cost z.

        Raises:
            ConfigurationError: where the count alone costs more than that.
        """
        if self.quantile is None or not self.noise_multiplier:
            return self.noise_multiplier
        left = self.noise_multiplier**-2 - (2 * self._count_deviation(divisor)) ** -2
        if left <= 0:
            raise ConfigurationError(
                f"count_deviation: the count alone costs more than noise_multiplier={self.noise_multiplier} allows; write "
                f"count_deviation={self.noise_multiplier:g} or more"
            )
        return left**-0.5

    def _count_deviation(self, divisor: int) -> float:
        """The deviation of the noise in the count."""
        return divisor / 20 if self.count_deviation is None else self.count_deviation

    def _moved(self, whole: torch.Tensor, divisor: int, release: int, federation: Federation) -> float:
        """By what C is multiplied, given which updates were not clipped."""
        counted = float(whole.double().sum()) - len(whole) / 2  # each adds 1/2 or -1/2
        if self.noise_multiplier:
            counted += float(gaussian("noise of the count", federation, release, 1)) * self._count_deviation(divisor)
        share = counted / len(whole) + 0.5  # of those who are there, which is public
        assert self.quantile is not None
        return math.exp(-self.quantile_rate * (share - self.quantile))
