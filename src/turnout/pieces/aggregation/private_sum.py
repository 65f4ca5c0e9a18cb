"""Sum clipped updates with Gaussian noise, for client-level differential privacy."""

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
    """Clip the update of each client, sum, and add Gaussian noise (DP-FedAvg), for client-level differential privacy.

    Delta_b is the update of report b, ``[P]``, w_b its weight, C the clipping norm, z the noise multiplier, y_t
    standard Gaussian noise of step t, ``[P]``, independent or correlated over steps, and D the divisor: N if weights
    are divided by the number N of all clients (FedAU), otherwise `cohort`. The direction is the release of a step::

        u = (1/D) (sum_b clip(D w_b Delta_b, C) + z C y_t)
        clip(v, C) = v min(1, C / ||v||)

    The server clips the weighted update, so that one client changes the sum by at most C, whatever it sends and
    whatever weight FedAU gives it.

    The released models of a run are together (epsilon, delta)-differentially private at the level of clients.
    Neighbouring federations have the same N clients, but one client has no data in the second (zero-out adjacency): it
    participates in the same rounds and contributes zeros. N and, without sampling, participation are public.
    `turnout.privacy.accounting` defines neighbours under sampling. `turnout.privacy.epsilon` computes epsilon, every
    row of the table of rounds contains that of the rounds so far, and a run that would exceed `budget` does not begin.
    The guarantee holds towards observers of the models. The server is trusted: it sees single updates or, with
    `secure`, sums before it adds the noise. With `noise_shares`, clients add the noise (see the guide to privacy for
    what holds towards the server).

    Weights may depend on participation, if it is public, and on a client's own report, but not on the data of other
    clients. A report that contains NaN or infinity counts as that of a client without data, and a round without reports
    has the noise of any other.

    The clients of SCAFFOLD send two vectors, the update and the change dc_b of their control variate. Both sums are one
    release of a Gaussian mechanism, each vector with its own norm and noise, where c is the server's mean of control
    variates::

        u = (1/D) (sum_b clip(D w_b Delta_b, C) + sqrt(2) z C y_t)
        c <- c + (1/N) (sum_b clip(dc_b, C_c) + sqrt(2) z C_c y'_t)

    The pair, each vector divided by its own norm, has a norm of at most sqrt(2), so that it has the privacy cost of z.
    Clipping the pair as one vector would save the factor sqrt(2), but would scale dc_b by a factor that depends on the
    weight of Delta_b. The client does not know this weight, and has to change its own control variate by the same
    amount. The noise in c accumulates over rounds; correlated noise reduces it.

    With `secure`, clients clip and mask their updates, and the server opens the sum of a round (see `SecureSum`) and
    adds its noise::

        u = (1/D) (sum_b q(clip(f_b Delta_b, C')) + z C y_t)
        C' = C - sqrt(P) 2^(-fraction_bits - 1)

    f_b is the product of the factors of the weighting chain, and q rounds to fixed point, which increases a norm by at
    most C - C'. One client therefore changes the sum by at most C, and a round has the same privacy cost as without
    masks. If sums are divided by N, or if all clients of a cohort report, the model is the same up to rounding; clients
    that drop out of a cohort count as zero.

    Args:
        norm: C, the maximum Euclidean norm of a weighted update, > 0, in units of an update; with `quantile`, the
            initial one.
        noise_multiplier: z, the standard deviation of the noise divided by C, from 0.001 to 1,000,000, or 0 for
            clipping without noise. Useful values are about 0.3 to 30.
        cohort: D, the expected number of reports in a step; None if weights are divided by N.
        correlation: correlation of the noise over rounds. All but `Independent` require `rounds`.
        rounds: number of rounds of the run, for which a correlation is computed.
        separation: minimum number of rounds from one participation of a client to the next (b). The server enforces it:
            it does not select a client earlier, and drops an earlier report. The default of 1 is no limit.
        most: maximum number of participations of a client (k), enforced in the same way; None is the number for which
            `separation` leaves room.
        sampling_rate: sampling probability of `Poisson`, in (0, 1), to count the amplification of privacy by sampling;
            None counts no amplification. It requires that all clients are available in every round, because otherwise
            the server does not determine the sample, and weights divided by N, because the size of the sample is
            private.
        sampled_from: N, to count the amplification by ``Uniform(cohort)``, which draws `cohort` of N clients without
            replacement; None does not count it. It requires that all clients are available in every round, and updates
            that do not depend on the rounds in which a client was drawn before. Neighbours then differ in the data of
            one client in any way, so that the sum changes by up to 2 C, in place of C.
        quantile: gamma, the target fraction of updates that are not clipped, in (0, 1). C adapts in every round by
            ``C <- C exp(-eta_C (b - gamma))``, where b is the noised fraction. None keeps C constant.
        quantile_rate: eta_C, the step size of that adaptation, > 0.
        control_norm: C_c, the clipping norm of changes of control variates (SCAFFOLD), > 0. Clients clip them to the
            same norm by `ClipControls`, so that c is the mean of their control variates, up to noise. None is for
            algorithms without control variates.
        noise_shares: n, the number of clients that add noise. Each clips its update and adds noise of standard
            deviation ``z C / sqrt(n)`` by `NoiseShare`; the server adds the shares of absent clients, so that a step
            with fewer than n reports has the same privacy cost. With `secure`, each client adds discrete Gaussian noise
            of standard deviation ``z C / sqrt(n - t)`` under its masks, without `NoiseShare`, and the server adds none
            to a sum that is opened. None has the server add all noise.
        dropouts: t, the number of the n clients that may drop out, for `noise_shares` with `secure`. A sum of fewer
            than n - t clients would have too little noise and is not opened; clients refuse to open it if each has all
            others as neighbours (``degree=None``).
        secure: the secure sum in which clients mask their clipped updates; None sends updates to the server, which
            clips them.
        count_deviation: standard deviation of the noise in the count behind b, from 0.001 to 1,000,000; None is D / 20,
            as in the paper. The noise multiplier of updates is then ``(z^-2 - (2 count_deviation)^-2)^(-1/2)``, so that
            updates and count together have the privacy cost of z.
        answers: bounds and noise of clients' answers to evaluations and queries of a server, which spend the same
            budget; None refuses these. Simulations do not ask.
        budget: maximum epsilon of the run, > 0; None is unlimited.
        delta: delta of the guarantee, in (0, 1) and below 1/N.

    State: ``norm []``, float64, the present C; ``releases []``, int64, the number of releases; and the state of the
    correlation, for control variates with the prefix ``control_``.

    Raises:
        ConfigurationError: for a number out of range, for options that exclude each other, and for algorithms that read
            more about clients than this sum, with the reason.

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
        """Raise an error for algorithms that read more than a sum with one contribution of each client's own data."""
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
        """The secure sum, with room for the noise of clients; None if the server receives single updates."""
        return self.secure if self.secure is None or self.noise_shares is None else with_shares(self, self.secure)

    @property
    def masking(self) -> Masking | None:
        """The options of the secure sum; None if the server receives single updates."""
        return None if self.secure_sum is None else self.secure_sum.masking

    @property
    def limit(self) -> ParticipationLimit:  # narrower than the base class: there is always one
        """The limit on the participation of a client."""
        return ParticipationLimit(self.separation, self.most)

    @property
    def is_correlated(self) -> bool:
        """True if the noise of a round depends on that of earlier rounds."""
        return not isinstance(self.correlation, Independent)

    def release(self, searched: tuple[float, ...] | None = None) -> Release:
        """Return the noised sums as the accountant needs them, with the coefficients that a correlation has searched."""
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
        """Return the coefficients that a correlation has searched, from a state; None before the search or without one."""
        values = state.get("searched")
        return None if values is None or not values.any() else tuple(values.flatten().tolist())

    def search(self) -> list[float] | None:
        """Return the coefficients that a correlation searches for a run, which `settled` stores; None without a search."""
        return self.correlation.search(*self._plan).flatten().tolist() if self.correlation.is_searched else None

    def settled(self, state: State, values: list[float]) -> State:
        """Return a state with the result of `search`, which is then not repeated."""
        return state | {
            name: torch.tensor(values, dtype=torch.float64).view(value.shape)
            for name, value in state.items()
            if name.endswith("searched")
        }

    def init(self, federation: Federation) -> State:
        """Return the initial norm, and the initial state of the correlation.

        Raises:
            ConfigurationError: if the count leaves no privacy budget for the updates; if N differs from `sampled_from`,
                or is 1/delta or more; if rounding would use up the norm; or if a secure sum has no room for the
                clients.
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
        """Return the state unchanged: no tensor has a row for each client."""
        return state

    @property
    def _plan(self) -> tuple[int, int, int | None]:
        """The number of rounds, the separation and the number of participations for which a correlation is computed."""
        return self.rounds or 1, self.separation, self.most

    @property
    def acts_alone(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if there is noise, which every counted round has, with or without reports."""
        return self.noise_multiplier > 0

    @property
    def noises_controls(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if control variates have noise."""
        return self.control_norm is not None and self.acts_alone

    def move(self, name: str, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the change of the mean of control variates, clipped and with noise, ``[P]``, and the new state."""
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
        """Return the noised direction ``[P]``, and the new state."""
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
        """Return the contributions to a masked sum, ``q(clip(f_b Delta_b, C'))`` plus clients' noise; None without masks."""
        if self.secure is None:
            return None
        values = clipped_summand(self.secure, self.norm, factors, report.updates.gathered())
        return values if self.noise_shares is None else values + shares_under_masks(self, report, seed)

    def mutated_rows(self, report: Report, state: State) -> dict[str, np.ndarray]:
        """Return the rows that a correlation overwrites."""
        if not self.noise_multiplier:
            return {}
        return {
            prefix + name: rows
            for prefix in self._prefixes
            for name, rows in self.correlation.mutated_rows(self._remembered(prefix, state)).items()
        }

    @property
    def _prefixes(self) -> tuple[str, ...]:
        """The prefixes of the names of a correlation's state: none for updates, ``control_`` for control variates."""
        return ("",) if self.control_norm is None else ("", _CONTROL)

    def _remembered(self, prefix: str, state: State) -> State:
        """Return the state of the correlation for one vector, without prefixes."""
        return {name: state[prefix + name] for name in self.correlation.init((0,), *self._plan)}

    def _divisor(self, federation: Federation) -> int:
        """Return D."""
        return self.cohort or federation.num_clients

    def _noise(self, prefix: str, state: State, federation: Federation) -> WithState:
        """Return the noise of a release, ``[P]``, of standard deviation 1, and the new state."""
        purpose = "noise of the controls" if prefix else "noise of the model"
        drawn = gaussian(purpose, federation, int(state["releases"]), federation.num_params)
        noise, remembered = self.correlation.next(drawn, self._remembered(prefix, state), *self._plan)
        return noise, state | {prefix + name: value for name, value in remembered.items()}
