"""Define the base class of attacks, and Byzantine clients that send modified updates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, is_finite, refuse
from turnout.core.device import to_device
from turnout.core.random import fold, generator, normal, stream
from turnout.core.ranges import NotNegative, Probability
from turnout.core.registry import Family, Registered
from turnout.core.types import Report
from turnout.core.updates import Updates
from turnout.data.shards import Shards
from turnout.distributed.updates import Sharded

_LOSSES = ("loss", "start_loss", "appeal_gap")
"""Reported figures that are losses."""


@dataclass(frozen=True)
class Attack(Registered):
    """Base class of attacks by clients that change their labels, their reports, or both, alone or in collusion.

    Args:
        fraction: share of the clients that attack, drawn once from the seed of the run; their number is rounded.

    Raises:
        ConfigurationError: if a fraction is outside [0, 1].
    """

    family = Family("behavior", "behaviors", ("turnout.population.behavior",))

    fraction: Probability = 0.1

    @property
    def colludes(self) -> bool:
        """True where attackers know the honest reports of the same step, from which `forged` makes theirs."""
        return type(self).forged is not Attack.forged

    def poisoned(self, labels: torch.Tensor, num_classes: int | None) -> torch.Tensor:
        """Return the labels on which attackers train, from their true labels."""
        return labels

    def corrupted(self, report: Report, rows: np.ndarray, key: int) -> Report:
        """Return the reports with those of attackers changed, each from its own report alone.

        A report of more local steps than its task asks for is dropped and counted, as a server between machines refuses it.

        Args:
            report: the honest reports.
            rows: the attackers' rows, int64, at least one.
            key: key of the attackers' random numbers.
        """
        return report

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update ``[P]`` that all colluding attackers of a step send."""
        raise NotImplementedError

    def bind(self, num_clients: int, seed: int = 0) -> BoundAttack:
        """Draw the attackers among N clients.

        Raises:
            ConfigurationError: if the share of attackers rounds to none.
        """
        attackers = np.zeros(num_clients, dtype=bool)
        number = round(self.fraction * num_clients)
        if self.fraction and not number:
            needed = f"a share that is at least one of {num_clients} clients when rounded, or 0"
            raise refuse("fraction of attackers", given=self.fraction, needed=needed)
        attackers[generator("byzantine clients", seed).choice(num_clients, number, replace=False)] = True
        return BoundAttack(self, attackers, stream("byzantine noise", seed))


@dataclass(frozen=True)
class Byzantine(Attack, name="byzantine"):
    """Some clients send ``scale * Delta + noise * ||Delta|| * e``, and add `inflation` to the losses that they report.

    e is Gaussian with expected squared length 1 (variance 1/P for each of the P coordinates). Attackers train honestly on
    their own data. They change their updates after all guards on the client, such as clipping, which therefore do not stop
    them; guards on the server may. Numbers that overflow are sent as the largest finite ones. Quantities that are only summed
    (control variates) are not changed. Attackers are always in the pool of an `Opting` population.

    The defaults are the attack of MaxFL (table 2), whose size the paper does not state. ``scale=-1`` alone flips the sign of
    updates, and ``scale=10`` enlarges them. For clients with flipped labels see `LabelFlipping` and
    ``split(flip_labels=...)``.

    Args:
        fraction: share of the clients that attack, drawn once from the seed of the run; their number is rounded.
        inflation: added to the reported losses.
        noise: length of the noise, relative to that of the update.
        scale: factor of the update.

    Raises:
        ConfigurationError: if a number is out of range, or the attack changes nothing.

    Example:
        >>> import turnout as to
        >>> to.behavior.Byzantine(fraction=0.2).bind(num_clients=10).attackers.nonzero()[0].tolist()
        [6, 8]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    fraction: float = 0.1
    inflation: NotNegative = 100.0
    noise: NotNegative = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not is_finite(self.scale):
            raise refuse("scale", given=self.scale, needed="a finite number")
        if self.inflation == 0 and self.noise == 0 and self.scale == 1:
            raise ConfigurationError("this attack changes nothing: write inflation, noise or scale, or behavior=None")

    def corrupted(self, report: Report, rows: np.ndarray, key: int) -> Report:
        """Return the reports with updates changed and losses inflated."""
        index = to_device(rows, report.delta.device)
        delta, seen = report.delta.clone(), dict(report.seen)
        delta[index] = _finite(
            self._changed(delta[index], report.client[rows], report.version[rows], key), delta[index]
        )
        for name in seen.keys() & set(_LOSSES):
            loss = seen[name][index]
            seen[name] = seen[name].index_copy(0, index, _finite((loss.double() + self.inflation).to(loss.dtype), loss))
        return replace(report, delta=delta, seen=seen)

    def _changed(self, delta: torch.Tensor, clients: np.ndarray, versions: np.ndarray, key: int) -> torch.Tensor:
        """Return scaled updates with noise, ``[B, P]``; the noise is a function of (seed, version, client)."""
        changed = (self.scale * delta.double()).to(delta.dtype)
        if self.noise and delta.shape[1]:
            keys = to_device(fold(key, versions, clients), delta.device)
            bits = fold(keys[:, None], torch.arange(delta.shape[1], device=delta.device))
            length = torch.linalg.vector_norm(delta, dim=1, keepdim=True, dtype=torch.float64)
            changed += (self.noise * length / math.sqrt(delta.shape[1]) * normal(bits)).to(delta.dtype)
        return changed


@Attack.family.register
def sign_flipping(fraction: float = 0.1) -> Byzantine:
    """Byzantine clients that send the negative of their update.

    Example:
        >>> import turnout as to
        >>> to.behavior.sign_flipping(fraction=0.2)
        Byzantine(fraction=0.2, inflation=0.0, noise=0.0, scale=-1.0)
    """
    return Byzantine(fraction, inflation=0.0, noise=0.0, scale=-1.0)


@Attack.family.register
def scaled_updates(fraction: float = 0.1, scale: float = 10.0) -> Byzantine:
    """Byzantine clients that send a multiple of their update.

    Example:
        >>> import turnout as to
        >>> to.behavior.scaled_updates(scale=5.0)
        Byzantine(fraction=0.1, inflation=0.0, noise=0.0, scale=5.0)
    """
    return Byzantine(fraction, inflation=0.0, noise=0.0, scale=scale)


@Attack.family.register
def random_updates(fraction: float = 0.1) -> Byzantine:
    """Byzantine clients that send Gaussian noise of the length of their update.

    Example:
        >>> import turnout as to
        >>> to.behavior.random_updates()
        Byzantine(fraction=0.1, inflation=0.0, noise=1.0, scale=0.0)
    """
    return Byzantine(fraction, inflation=0.0, noise=1.0, scale=0.0)


@dataclass(frozen=True, eq=False)
class Honest:
    """The knowledge of colluding attackers about a step.

    Attributes:
        updates: updates of all clients of the step, including attackers, ``[B, P]``.
        rows: rows of honest and finite updates, int64, at least one.
        num_attackers: number of attackers.
        direction: the direction of the server with equal weights, ``[P]``, as a function of the update ``[P]`` of all
            attackers.
    """

    updates: Updates
    rows: torch.Tensor
    num_attackers: int
    direction: Callable[[torch.Tensor], torch.Tensor]

    def mean(self) -> torch.Tensor:
        """Return the mean of the honest updates, float64 ``[P]``."""
        even = torch.zeros(len(self.updates), dtype=torch.float64, device=self.updates.device)
        return self.updates.weighted_sum(even.index_fill(0, self.rows, 1.0 / len(self.rows)))

    def deviation(self) -> torch.Tensor:
        """Return the standard deviation of each coordinate over honest updates, float64 ``[P]``; 0 for a single update."""
        if len(self.rows) == 1:
            return self.mean().zero_()
        return self.updates.columnwise(lambda columns: columns[self.rows].double().std(dim=0))


@dataclass(frozen=True, eq=False)
class BoundAttack:
    """An attack bound to the N clients of a run.

    Attributes:
        options: the attack.
        attackers: mask of the attackers, bool ``[N]``.
    """

    options: Attack
    attackers: np.ndarray
    key: int

    def sent(self, report: Report) -> Report:
        """Return the reports as clients send them: those of attackers are changed."""
        rows = np.flatnonzero(self.attackers[report.client])
        return self.options.corrupted(report, rows, self.key) if len(rows) else report

    def poisoned(self, train: Shards, num_classes: int | None) -> Shards:
        """Return the training examples with the labels of attackers replaced by those on which they train."""
        owner = np.repeat(self.attackers, train.sizes)
        rows = to_device(np.flatnonzero(owner), train.y.device)
        labels = train.y[rows]
        changed = self.options.poisoned(labels, num_classes)
        return train if changed is labels else replace(train, y=train.y.index_copy(0, rows, changed))

    def colluded(self, report: Report, direction: Callable[[Report], torch.Tensor]) -> Report:
        """Return all reports of a step with those of colluding attackers replaced.

        Args:
            report: the reports, before any sum.
            direction: the direction of the server for reports of equal weight.
        """
        attacking = self.attackers[report.client]
        if not self.options.colludes or not attacking.any():
            return report
        finite = report.finite()
        known = np.flatnonzero(~attacking & finite)
        if not len(known):
            return report
        device = report.delta.device
        which = to_device(attacking & finite, device)

        def with_forged(vector: torch.Tensor) -> Report:
            return replace(report, delta=_replaced(report.delta, which, vector))

        honest = Honest(
            report.updates,
            to_device(np.asarray(known), device),
            int(attacking.sum()),
            lambda vector: direction(with_forged(vector)),
        )
        return with_forged(self.options.forged(honest))


def _replaced(rows: Any, which: torch.Tensor, vector: torch.Tensor) -> Any:
    """Return the rows with `vector` in place of those under the mask `which`, bool ``[B]``."""
    if isinstance(rows, Sharded):
        return Sharded(_replaced(rows.local, which[rows.index], vector), rows.index, len(rows))
    return torch.where(which[:, None], torch.nan_to_num(vector.to(rows.dtype)), rows)


def _finite(changed: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """Return the changed values, limited to the largest finite numbers of their type if the original is finite.

    Attackers update their own memory from the original report. The server would drop a report that overflows, and its mean of
    the clients' memories would then differ from the true one.
    """
    return torch.where(original.isfinite(), torch.nan_to_num(changed), original)
