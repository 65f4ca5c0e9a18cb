"""Sum clipped updates and add Gaussian noise, for differential privacy of clients."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.distributed.sums import OnlySums
from turnout.pieces.aggregation.maskable import MaskableSum
from turnout.pieces.aggregation.private_fit import (
    check_coins,
    check_divisor,
    check_fixed_size,
    check_sums,
    check_weights,
)
from turnout.pieces.aggregation.private_options import check_clients, check_options
from turnout.pieces.aggregation.private_quantile import moved_norm, update_multiplier
from turnout.pieces.aggregation.private_secure import (
    check_secure,
    check_secure_options,
    clipped_summand,
    grid_norm,
    shares_under_masks,
    with_shares,
)
from turnout.pieces.aggregation.private_shares import check_shares, completed_sum, shortened
from turnout.pieces.aggregation.secure_sum import SecureSum
from turnout.pieces.base import ParticipationLimit, Slots, Weights, WithState
from turnout.privacy.accounting import Release
from turnout.privacy.answers import Answers
from turnout.privacy.correlation import Correlation, Independent
from turnout.privacy.noise import gaussian
from turnout.protocol.secure.masking import Masking

_CONTROL = "control_"


@dataclass(frozen=True)
class PrivateSum(MaskableSum, name="private_sum"):
    """Clip what every client adds, sum, and add noise (DP-FedAvg): the model says little about any one client.

    ::

        u = (1/D) (sum_b clip(D w_b Delta_b, C) + z C y_t),    clip(v, C) = v min(1, C / ||v||)

    w are the weights of the chain, D is N where they are divided by N (FedAU) and `cohort` otherwise, y_t is Gaussian
    noise of deviation 1 in each of P places, or a correlation of it over rounds. The server clips the weighted update, so one
    client adds at most C whatever it sends and however FedAU weighs it. `turnout.privacy.epsilon` says what it costs,
    and so does every row of the table of rounds; no run begins that would exceed `budget`.

    SCAFFOLD's clients send two vectors, and the pair is released by one Gaussian mechanism: each is clipped to its own length
    and has the noise that is right for it,

    ::

        u = (1/D) (sum_b clip(D w_b Delta_b, C) + sqrt(2) z C y_t)
        c <- c + (1/N) (sum_b clip(dc_b, C_c) + sqrt(2) z C_c y'_t)

    so that the pair, each over its own norm, has a length of at most sqrt(2) and costs what z says. One clip over the pair
    would save the sqrt(2), but how much of dc_b is left would depend on the weight that the server gives Delta_b, which the
    client, whose c_b must move by what counts, does not know. The noise of c adds up over rounds; correlated noise less.

    With `secure`, clients clip and mask, the server opens the sum of a round (see `SecureSum`) and adds its noise to it:

    ::

        u = (1/D) (sum_b q(clip(f_b Delta_b, C')) + z C y_t),    C' = C - sqrt(P) 2^(-fraction_bits - 1)

    f are the factors of the chain, and q rounds to fixed point, which lengthens no vector by more than C - C': a client adds
    at most C to the sum, and a round costs what it costs without masks. Divided by N, or with reports of all of a cohort, the
    model is the same up to rounding; who drops out of a cohort counts as zero.

    Weights may depend on who took part when, which is public, and on the client's own report; not on what others hold. A
    report that holds NaN or infinity counts as one that adds nothing (`turnout.privacy.accounting` defines neighbours), and
    a round without reports has the noise of any other.

    Args:
        norm: C, the length of an update; with `quantile`, the first.
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
        sampled_from: N, where the privacy is to be counted that ``Uniform(cohort)`` adds, which draws equally many of all
            clients without replacement. It needs clients as `sampling_rate` does, and updates that do not depend on the
            rounds in which a client was drawn before. Neighbours then differ in the data of one client, whatever these are,
            so that the sum moves by up to 2 C: without sampling, where one client has no data, it would be C.
        quantile: gamma; C moves so that this share of updates is not clipped, ``C <- C exp(-rate (b - gamma))``, b the noised
            share. None leaves C as it is.
        quantile_rate: of that, eta_C.
        control_norm: C_c, of the changes of control variates (SCAFFOLD), which clients clip likewise by `ClipControls`, so
            that c is the mean of what they keep, and noise. None is for algorithms without any.
        noise_shares: n, where clients clip and each adds ``z C / sqrt(n)`` of the noise, by `NoiseShare`, and the server that
            of those who dropped out, so that a step of fewer than n costs the same. None has the server add all. With
            `secure`, clients add ``z C / sqrt(n - t)`` without any guard: discrete Gaussian noise under their masks. The
            server then adds none to a sum that opens.
        dropouts: t, how many of n clients may drop out. A sum of fewer than n - t clients would have too little noise and is
            not opened; clients refuse to open it where each has all others as neighbours (``degree=None``).
        secure: how clients mask their clipped updates; None sends updates to the server, which clips them.
        count_deviation: of the noise in the count behind b; None is a twentieth of D, as in the paper. Updates then have the
            noise ``(z^-2 - (2 count_deviation)^-2)^(-1/2)``, so that both together cost what z says.
        answers: bounds and noise of what clients of a server answer to evaluations and queries, which spend the same
            budget; None has nobody asked. Simulations ask nobody.
        budget: the epsilon that a run must not exceed; None only counts.
        delta: of epsilon, below 1/N.

    State: ``norm []``, float64; ``releases []``, int64; what a correlation remembers and has searched, of control variates
    with ``control_`` before the names.

    Raises:
        ConfigurationError: for numbers out of range, and for algorithms of which no sum like this is all they need, with the
            reason.

    Example:
        >>> import turnout as to
        >>> private = to.fedau(also=(PrivateSum(norm=0.5, noise_multiplier=2.0),))
        >>> private.privacy is not None, private.aggregation.acts_alone
        (True, True)

    References: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018; Andrew et al.,
    "Differentially private learning with adaptive clipping", NeurIPS 2021, Algorithm 1.
    """

    nulls_dropped = True

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
    control_norm: float | None = None
    noise_shares: int | None = None
    dropouts: int = 0
    secure: SecureSum | None = None
    count_deviation: float | None = None
    answers: Answers | None = None
    budget: float | None = None
    delta: float = 1e-5

    def __post_init__(self) -> None:
        check_options(self)
        check_secure_options(self)
        if self.cohort:
            update_multiplier(self, self.cohort)

    def fits(self, algorithm: Slots) -> None:
        """Refuse algorithms that need more than a sum to which each client adds what depends on its own data."""
        check_sums(algorithm, self.control_norm)
        check_weights(algorithm)
        check_divisor(algorithm, self.cohort)
        if self.sampling_rate is not None:
            check_coins(algorithm, self.sampling_rate)
        if self.sampled_from is not None:
            check_fixed_size(algorithm, self.cohort)
        check_shares(algorithm, self)
        if self.secure is not None:
            check_secure(algorithm)

    @property
    def secure_sum(self) -> SecureSum | None:
        """The secure sum of noised updates; None where the server gets single updates."""
        return self.secure if self.secure is None or self.noise_shares is None else with_shares(self, self.secure)

    @property
    def masking(self) -> Masking | None:
        """The options of the secure sum; None where the server gets single updates."""
        return None if self.secure_sum is None else self.secure_sum.masking

    @property
    def limit(self) -> ParticipationLimit:  # narrower than the base class: there is always one
        """Say how often the server lets a client take part."""
        return ParticipationLimit(self.separation, self.most)

    @property
    def is_correlated(self) -> bool:
        """Tell whether the noise of a round depends on that of earlier ones."""
        return not isinstance(self.correlation, Independent)

    def release(self, searched: tuple[float, ...] | None = None) -> Release:
        """Return what the accountant has to know, with what the correlation of a run has searched."""
        column = None
        if self.is_correlated:
            values = None if searched is None else torch.tensor(searched, dtype=torch.float64).view(2, -1)
            column = tuple(self.correlation.coefficients(*self._plan, values).tolist())
        if self.sampled_from is None:
            return Release(
                self.noise_multiplier, column, self.separation, self.most, self.sampling_rate,
                is_discrete=self.secure is not None and self.noise_shares is not None,
            )  # fmt: skip
        assert self.cohort is not None
        return Release(self.noise_multiplier, sampling_rate=self.cohort / self.sampled_from, sampling="fixed_size")

    def searched(self, state: State) -> tuple[float, ...] | None:
        """Return what the correlation has searched, as a state has it; None where it has not yet, or does not search."""
        values = state.get("searched")
        return None if values is None or not values.any() else tuple(values.flatten().tolist())

    def search(self) -> list[float] | None:
        """Return what the correlation searches for a run, which `settled` makes part of a state; None if it does not."""
        return self.correlation.search(*self._plan).flatten().tolist() if self.correlation.is_searched else None

    def settled(self, state: State, values: list[float]) -> State:
        """Return a state that goes on with what `search` has found, in place of searching."""
        return state | {
            name: torch.tensor(values, dtype=torch.float64).view(value.shape)
            for name, value in state.items()
            if name.endswith("searched")
        }

    def init(self, federation: Federation) -> State:
        """Return the first norm, and no noise yet.

        Raises:
            ConfigurationError: where N is so small that the count leaves no noise to spend on the updates, is another than
                `sampled_from`, or is 1/delta or more; and where rounding would use up the norm, or a secure sum has no room.
        """
        check_clients(self.sampled_from, self.delta, federation.num_clients)
        update_multiplier(self, self._divisor(federation))
        if (secure := self.secure_sum) is not None:
            secure.init(federation)
            grid_norm(self.norm, secure.fraction_bits, federation.num_params)
        first = torch.tensor(self.norm, dtype=torch.float64)
        remembered = {
            prefix + name: value.to(federation.device, federation.dtype) if name == "correlated" else value
            for prefix in self._prefixes
            for name, value in self.correlation.init((federation.num_params,), *self._plan).items()
        }
        return {"norm": first, "releases": torch.tensor(0), **remembered}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the same: nothing has a row for each client."""
        return state

    @property
    def _plan(self) -> tuple[int, int, int | None]:
        """Return the rounds, separation and participations that a correlation is made for."""
        return self.rounds or 1, self.separation, self.most

    @property
    def acts_alone(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Tell whether there is noise, which every counted round has, with reports or without."""
        return self.noise_multiplier > 0

    @property
    def noises_controls(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Tell whether control variates have noise, too."""
        return self.control_norm is not None and self.acts_alone

    def move(self, name: str, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return by how much the mean of control variates moves: clipped changes and noise."""
        assert self.control_norm is not None
        total = torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)
        if len(report):
            changes = Updates.of(report.extra[name])
            total = changes.weighted_sum(shortened(weights, changes.norms(), self.control_norm))
        if self.noise_multiplier:
            noise, state = self._noise(_CONTROL, state, federation)
            deviation = update_multiplier(self, self._divisor(federation)) * self.control_norm
            total += noise.double() * deviation / federation.num_clients
        return total, state

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the noised direction, and the state after it."""
        release, updates = int(state["releases"]), report.updates
        summed = isinstance(updates, OnlySums)  # under masks; the rows were clipped, and may have noise
        if self.noise_shares is not None and summed is (self.secure is not None):
            total = completed_sum(self, weights, report, self._divisor(federation), release, federation)
            return total.to(federation.dtype), state | {"releases": torch.tensor(release + 1)}
        divisor, norm, after = self._divisor(federation), float(state["norm"]), state
        lengths = torch.zeros(0)
        if isinstance(updates, OnlySums):
            total = updates.weighted_sum(updates.weights) / divisor
        else:
            lengths = divisor * weights.abs() * updates.norms()
            total = updates.weighted_sum(shortened(weights, lengths, norm))
        if self.noise_multiplier:
            noise, after = self._noise("", state, federation)
            total += noise.double() * update_multiplier(self, divisor) * norm / divisor
        after = after | {"releases": torch.tensor(release + 1)}
        if self.quantile is not None and len(lengths):
            after["norm"] = state["norm"] * moved_norm(self, lengths <= norm, report, divisor, release, federation)
        return total.to(federation.dtype), after

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None) -> torch.Tensor | None:
        """Return what clients add to a sum under masks, ``q(clip(f_b Delta_b, C'))`` and their noise; None without masks."""
        if self.secure is None:
            return None
        values = clipped_summand(self.secure, self.norm, factors, report.updates.gathered())
        return values if self.noise_shares is None else values + shares_under_masks(self, report, seed)

    def mutated_rows(self, report: Report, state: State) -> dict[str, np.ndarray]:
        """Return the rows that a correlation writes over."""
        if not self.noise_multiplier:
            return {}
        return {
            prefix + name: rows
            for prefix in self._prefixes
            for name, rows in self.correlation.mutated_rows(self._remembered(prefix, state)).items()
        }

    @property
    def _prefixes(self) -> tuple[str, ...]:
        """What stands before the names of what a correlation remembers: nothing for updates."""
        return ("",) if self.control_norm is None else ("", _CONTROL)

    def _remembered(self, prefix: str, state: State) -> State:
        """What a correlation remembers of the noise of one vector, by its own names."""
        return {name: state[prefix + name] for name in self.correlation.init((0,), *self._plan)}

    def _divisor(self, federation: Federation) -> int:
        """D."""
        return self.cohort or federation.num_clients

    def _noise(self, prefix: str, state: State, federation: Federation) -> WithState:
        """The noise of a release, ``[P]``, deviation 1, and what is remembered of it by names with this before them."""
        purpose = "noise of the controls" if prefix else "noise of the model"
        drawn = gaussian(purpose, federation, int(state["releases"]), federation.num_params)
        noise, remembered = self.correlation.next(drawn, self._remembered(prefix, state), *self._plan)
        return noise, state | {prefix + name: value for name, value in remembered.items()}
