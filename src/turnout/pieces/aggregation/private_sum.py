"""Sum clipped updates with Gaussian noise, for client-level differential privacy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import Controls, MutatesRows, Weights, WithState
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.distributed.sums import OnlySums
from turnout.pieces.aggregation.private_options import check_clients
from turnout.pieces.aggregation.private_quantile import moved_norm, update_multiplier
from turnout.pieces.aggregation.private_release import PrivateRelease
from turnout.pieces.aggregation.private_shares import (
    clipped_summand,
    completed_sum,
    grid_norm,
    shortened,
    with_noise_under_masks,
)
from turnout.pieces.aggregation.round_noise import CONTROL
from turnout.pieces.aggregation.secure_sum import MaskedPhases
from turnout.privacy.ranges import BOUNDS


@dataclass(frozen=True)
class PrivateSum(PrivateRelease, MutatesRows, name="private_sum"):
    """Clip the update of each client, sum, and add Gaussian noise (DP-FedAvg), for client-level differential privacy.

    Delta_b is the update of report b, ``[P]``, w_b its weight, C the clipping norm, z the noise multiplier, y_t
    standard Gaussian noise of step t, ``[P]``, independent or correlated over steps, and D the divisor: N if weights
    are divided by the number N of all clients (FedAU), otherwise `cohort`. The direction is the release of a step::

        u = (1/D) (sum_b clip(D w_b Delta_b, C) + z C y_t)
        clip(v, C) = v min(1, C / ||v||)

    The server clips the weighted update, so that one client changes the sum by at most C, whatever it sends and
    whatever weight FedAU gives it. The sum and the noise are rounded to a grid, and z C includes what rounding adds to the
    sensitivity (`turnout.privacy.noise.GridNoise`), so that the possible values of u do not depend on the data.

    The released models of a run are together (epsilon, delta)-differentially private at the level of clients.
    Neighboring federations have the same N clients, but one client has no data in the second (zero-out adjacency): it
    participates in the same rounds and contributes zeros. N and, without sampling, participation are public.
    `turnout.privacy.accounting` defines neighbors under sampling. `turnout.privacy.epsilon` computes epsilon, every
    row of the table of rounds contains that of the rounds so far, and a run that would exceed `budget` does not begin.
    The guarantee holds toward observers of the models. The server is trusted: it sees single updates or, with
    `secure`, sums before it adds the noise. With `noise_shares`, clients add the noise (see the guide to privacy for
    what holds toward the server).

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
        norm: C, the maximum Euclidean norm of a weighted update, from 10^-30 to 10^9, in units of an update; with
            `quantile`, the initial one, and the adapted norm stays in that range.
        noise_multiplier: z, the standard deviation of the noise divided by C, from 0.001 to 1,000,000, or 0 for
            clipping without noise. Useful values are about 0.3 to 30.
        cohort: D, the expected number of reports in a step; None if weights are divided by N.
        correlation: correlation of the noise over rounds. All but `Independent` require `rounds`.
        rounds: number of rounds of the run, for which a correlation is computed.
        separation: minimum number of rounds from one participation of a client to the next (b). The server enforces it:
            it does not select a client earlier, and drops an earlier report. The default of 1 sets no limit.
        most: maximum number of participations of a client (k), enforced in the same way; None is the number for which
            `separation` leaves room.
        sampling_rate: sampling probability of `Poisson`, in (0, 1), to count the amplification of privacy by sampling;
            None counts no amplification. It requires that all clients are available in every round, because otherwise
            the server does not determine the sample, and weights divided by N, because the size of the sample is
            private.
        sampled_from: N, to count the amplification by ``Uniform(cohort)``, which draws `cohort` of N clients without
            replacement; None does not count it. It requires that all clients are available in every round, and updates
            that do not depend on the rounds in which a client was drawn before. Neighbors then differ in the data of
            one client in any way, so that the sum changes by up to 2 C, in place of C.
        quantile: gamma, the target fraction of updates that are not clipped, in (0, 1). C adapts in every round by
            ``C <- C exp(-eta_C (b - gamma))``, where b is the noised fraction. None keeps C constant.
        quantile_rate: eta_C, the step size of that adaptation, > 0 and at most 10.
        control_norm: C_c, the clipping norm of changes of control variates (SCAFFOLD), from 10^-30 to 10^9. Clients clip
            them to the same norm by `ClipControls`, so that c is the mean of their control variates, up to noise. None is
            for algorithms without control variates.
        noise_shares: n, the number of clients that add noise. Each clips its update and adds noise of standard
            deviation ``z C / sqrt(n)`` by `NoiseShare`; the server adds the shares of absent clients, so that a step
            with fewer than n reports has the same privacy cost. With `secure`, each client adds discrete Gaussian noise
            of standard deviation ``z C / sqrt(n - t)`` under its masks, without `NoiseShare`, and the server adds none
            to a sum that is opened. None has the server add all noise.
        dropouts: t, the number of the n clients that may drop out, for `noise_shares` with `secure`. A sum of fewer
            than n - t clients would have too little noise and is not opened; clients refuse to open it if each has all
            others as neighbors (``degree=None``).
        secure: the secure sum in which clients mask their clipped updates; None sends updates to the server, which
            clips them.
        count_deviation: standard deviation of the noise in the count behind b, from 0.001 to 1,000,000; None is a twentieth
            of `cohort`, as in the paper, and is refused if weights are divided by all N clients. The noise multiplier of
            updates is then ``(z^-2 - (2 count_deviation)^-2)^(-1/2)``, so that updates and count together have the privacy
            cost of z.
        answers: bounds and noise of clients' answers to evaluations and queries of a server, which spend the same
            budget; None refuses these. Simulations do not ask.
        budget: maximum epsilon of the run, > 0; None is unlimited.
        delta: delta of the guarantee, in (0, 1) and below 1/N.

    State: ``norm []``, float64, the present C; ``releases []``, int64, the number of releases; and the state of the
    correlation, for control variates with the prefix ``control_``.

    Raises:
        ConfigurationError: if a number is out of range, options exclude each other, or the algorithm reads more about
            clients than this sum, with the reason.

    Example:
        >>> import turnout as to
        >>> private = to.fedau(also=(PrivateSum(norm=0.5, noise_multiplier=2.0),))
        >>> private.privacy is not None, private.aggregation.acts_alone
        (True, True)

    References: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018; Andrew et al.,
    "Differentially private learning with adaptive clipping", NeurIPS 2021, Algorithm 1.
    """

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
        return {"norm": first, "releases": torch.tensor(0), **self.noise.init(federation)}

    @property
    def controls(self) -> Controls:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The sum of changes of control variates, which has noise in every round if updates have."""
        return Controls(self.noised_change, without_reports=self.control_norm is not None and self.acts_alone)

    @property
    def extra(self) -> MaskedPhases | None:
        """The phases of the secure sum; None if the server receives single updates."""
        return None if self.masking is None else MaskedPhases(self.masking, self.summand, nulls_dropped=True)

    def noised_change(
        self, name: str, weights: Weights, report: Report, state: State, federation: Federation
    ) -> WithState:
        """Return the change of the mean of control variates, clipped and with noise, ``[P]``, and the new state."""
        assert self.control_norm is not None
        total = torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)
        if len(report):
            changes = Updates.of(report.extra[name])
            total = changes.weighted_sum(shortened(weights, changes.norms(), self.control_norm))
        if self.noise_multiplier:
            total, state = self._released(
                CONTROL, total * federation.num_clients, self.control_norm, int(state["releases"]), state, federation
            )
            total /= federation.num_clients
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
            total = updates.weighted_sum(updates.weights)
        else:
            lengths = divisor * weights.abs() * updates.norms()
            total = updates.weighted_sum(shortened(weights, lengths, norm))
        if self.noise_multiplier:
            total = total if summed else total * divisor
            total, after = self._released("", total, norm, release, state, federation)
        if summed or self.noise_multiplier:
            total = total / divisor
        after = after | {"releases": torch.tensor(release + 1)}
        if self.quantile is not None and len(lengths):
            moved = moved_norm(self, lengths <= norm, report, divisor, release, federation)
            after["norm"] = (state["norm"] * moved).clamp(*BOUNDS)
        return total.to(federation.dtype), after

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None) -> torch.Tensor:
        """Return the contributions to a masked sum, ``q(clip(f_b Delta_b, C'))`` plus clients' noise."""
        assert self.secure is not None
        values = clipped_summand(self.secure, self.norm, factors, report.updates.gathered())
        return values if self.noise_shares is None else with_noise_under_masks(self, values, report, seed)

    def mutated_rows(self, report: Report, state: State) -> dict[str, np.ndarray]:
        """Return the rows that a correlation overwrites."""
        return self.noise.mutated_rows(state) if self.noise_multiplier else {}

    def _released(
        self, prefix: str, total: torch.Tensor, norm: float, release: int, state: State, federation: Federation
    ) -> WithState:
        """Return a sum of vectors of at most a norm, float64 ``[P]``, with noise on the grid, and the new state."""
        grid = self.noise.grid(update_multiplier(self, self._divisor(federation)), norm, federation.num_params)
        noise, state = self.noise.next(prefix, grid, release, state, federation)
        return grid.released(total, noise), state

    def _divisor(self, federation: Federation) -> int:
        """Return D."""
        return self.cohort or federation.num_clients
