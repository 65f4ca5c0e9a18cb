"""Differential privacy for clients: a sum of clipped updates, and Gaussian noise of the server."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from turnout.core.checks import ConfigurationError, count, not_negative, positive, refuse
from turnout.core.types import Federation, Report, State
from turnout.privacy.accounting import Release
from turnout.privacy.correlation import Correlation, Independent
from turnout.privacy.noise import gaussian
from turnout.selection.poisson import Poisson
from turnout.slots import Aggregation, ParticipationLimit, Slots, Weights
from turnout.weighting import DivideByClients
from turnout.weighting.normalise import ByOneNumber

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
            by N, for how many were drawn is private, too.
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
        for name in ("cohort", "rounds", "most"):
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
        for name in ("quantile", "sampling_rate"):
            if correlated and getattr(self, name) is not None:
                raise ConfigurationError(
                    f"{name} goes with independent noise alone: of correlated noise, the sensitivity is that of a whole run "
                    "with one norm, and sampling adds nothing that this package could count"
                )
        if self.sampling_rate is not None and (self.separation > 1 or self.most is not None):
            raise ConfigurationError("sampling_rate: a client that was drawn by a coin cannot be kept from coming back")
        if self.sampling_rate is not None and self.quantile is not None:
            raise ConfigurationError(
                "quantile: who was drawn by a coin is private, and so is the share that is not clipped"
            )
        if self.cohort:
            self._update_multiplier(self.cohort)

    def fits(self, algorithm: Slots) -> None:
        """Refuse algorithms that need more than a sum to which each client adds what depends on its own data."""
        if algorithm.keeps:
            raise ConfigurationError(
                f"PrivateSum: clients also send the change of {algorithm.keeps[0]}, which the server adds up without "
                "noise: use an algorithm that sends the update alone"
            )
        if algorithm.selection.measurements:
            raise ConfigurationError(
                f"PrivateSum: {type(algorithm.selection).__name__} chooses the cohort by what clients measure on their data, "
                "one by one, and so tells who is in it; no noise in the sum hides that"
            )
        if algorithm.server.of_reports:
            raise ConfigurationError(
                f"PrivateSum: {type(algorithm.server).__name__} reads the length of every update, and its step is not noised"
            )
        self._check_weights(algorithm)
        if self.sampling_rate is not None and algorithm.selection != Poisson(self.sampling_rate):
            raise ConfigurationError(
                f"sampling_rate: got {self.sampling_rate}, and {type(algorithm.selection).__name__} draws otherwise: add "
                "Poisson with that rate to the pieces, or leave sampling_rate out"
            )
        if self.sampling_rate is not None and not isinstance(algorithm.weighting[-1], DivideByClients):
            raise ConfigurationError(
                f"sampling_rate: how many were drawn by coins is private, and {type(algorithm.weighting[-1]).__name__} "
                "divides by it: use DivideByClients, as average_all and fedau do"
            )

    def _check_weights(self, algorithm: Slots) -> None:
        """Refuse weights in which the data of other clients show."""
        *chain, last = algorithm.weighting
        for piece in algorithm.weighting:
            if piece.reads == "others":
                raise ConfigurationError(
                    f"PrivateSum: {type(piece).__name__} makes a client's weight of what other clients hold, so that one "
                    "client moves the share of all and its influence has no bound"
                )
        if not isinstance(last, ByOneNumber):
            raise ConfigurationError(f"PrivateSum: the divisor of {type(last).__name__} differs from report to report")
        if any(piece.reads == "own" for piece in chain) and not last.divisor_is_public:
            raise ConfigurationError(
                f"PrivateSum: {type(last).__name__} divides by a sum of what clients' data say, which is not noised: divide "
                "by DivideByClients or DivideByParticipants, or by DivideByNoisySum; in place of ByExamples take "
                "ExamplesUpTo, or a recipe in which clients count alike, such as average_participating"
            )
        if not isinstance(last, DivideByClients) and self.cohort is None:
            raise ConfigurationError(
                f"PrivateSum: with {type(last).__name__}, noise is added to a sum over a cohort: write cohort=, the reports "
                "of a step that you expect"
            )
        if isinstance(last, DivideByClients) and self.cohort is not None:
            raise ConfigurationError("PrivateSum: the chain divides by all N clients: leave cohort out")

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
        return Release(self.noise_multiplier, column, self.separation, self.most, self.sampling_rate)

    def init(self, federation: Federation) -> State:
        """Return the first norm, and no noise yet.

        Raises:
            ConfigurationError: where N is so small that the count leaves no noise to spend on the updates.
        """
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
