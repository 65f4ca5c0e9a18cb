"""Base class of the private sum: its options, their checks, and the release that they declare to the accountant."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field

import torch

from turnout.base import Aggregation, Slots
from turnout.core.ranges import Count, Positive, Whole
from turnout.core.types import Federation, State
from turnout.pieces.aggregation.private_fit import check_fit
from turnout.pieces.aggregation.private_options import Inside, QuantileRate, check_options
from turnout.pieces.aggregation.private_quantile import update_multiplier
from turnout.pieces.aggregation.private_shares import check_secure_options, with_shares
from turnout.pieces.aggregation.round_noise import CONTROL, RoundNoise
from turnout.pieces.aggregation.secure_sum import CLIPS_BEFORE, SecureSum
from turnout.privacy.accounting import Release
from turnout.privacy.answers import Answers
from turnout.privacy.correlation import Correlation, Independent
from turnout.privacy.ranges import Bound, Deviation, DeviationOrZero
from turnout.protocol.secure.masking import Masking


@dataclass(frozen=True)
class PrivateRelease(Aggregation, ABC):
    """Declare how much noise a sum has and how often a client takes part in it. `PrivateSum` documents the options."""

    norm: Bound = 1.0
    noise_multiplier: DeviationOrZero = 1.0
    cohort: Count | None = None
    correlation: Correlation = field(default_factory=Independent)
    rounds: Count | None = None
    separation: Count = 1
    most: Count | None = None
    sampling_rate: Inside | None = None
    sampled_from: Count | None = None
    quantile: Inside | None = None
    quantile_rate: QuantileRate = 0.2
    control_norm: Bound | None = None
    noise_shares: Count | None = None
    dropouts: Whole = 0
    secure: SecureSum | None = None
    count_deviation: Deviation | None = None
    answers: Answers | None = None
    budget: Positive | None = None
    delta: Inside = 1e-5

    def __post_init__(self) -> None:
        check_options(self)
        check_secure_options(self)
        if self.cohort:
            update_multiplier(self, self.cohort)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for algorithms that read more than a sum with one contribution of each client's own data."""
        check_fit(algorithm, self)

    @property
    def secure_sum(self) -> SecureSum | None:
        """The secure sum, with room for the noise of clients; None if the server receives single updates."""
        return self.secure if self.secure is None or self.noise_shares is None else with_shares(self, self.secure)

    @property
    def masking(self) -> Masking | None:
        """The options of the secure sum; None if the server receives single updates."""
        return None if self.secure_sum is None else self.secure_sum.masking

    @property
    def needs_rounds(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The reason for which masks require synchronous rounds; None without masks."""
        return None if self.secure is None else CLIPS_BEFORE

    @property
    def is_correlated(self) -> bool:
        """True if the noise of a round depends on that of earlier rounds."""
        return not isinstance(self.correlation, Independent)

    @property
    def noise(self) -> RoundNoise:
        """The noise of each round, before it is scaled."""
        prefixes = ("",) if self.control_norm is None else ("", CONTROL)
        return RoundNoise(self.correlation, self.rounds or 1, self.separation, self.most, prefixes)

    @property
    def acts_alone(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if there is noise, which every counted round has, with or without reports."""
        return self.noise_multiplier > 0

    def release(self, searched: tuple[float, ...] | None = None) -> Release:
        """Return the noised sums as the accountant needs them, with the coefficients that a correlation has searched."""
        if self.sampled_from is None:
            return Release(
                self.noise_multiplier, self.noise.column(searched), self.separation, self.most, self.sampling_rate,
                is_discrete=self.noise_shares is not None,
            )  # fmt: skip
        assert self.cohort is not None
        return Release(self.noise_multiplier, sampling_rate=self.cohort / self.sampled_from, sampling="fixed_size")

    def searched(self, state: State) -> tuple[float, ...] | None:
        """Return the coefficients that a correlation has searched, from a state; None before the search or without one."""
        values = state.get("searched")
        return None if values is None or not values.any() else tuple(values.flatten().tolist())

    def settled(self, state: State, values: list[float]) -> State:
        """Return a state with the coefficients that a correlation has searched (`RoundNoise.search`)."""
        return state | {
            name: torch.tensor(values, dtype=torch.float64).view(value.shape)
            for name, value in state.items()
            if name.endswith("searched")
        }

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state unchanged: no tensor has a row for each client."""
        return state
