"""Clients who do not do what they are asked to: Byzantine clients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, is_finite, not_negative, probability, refuse
from turnout.core.device import to_device
from turnout.core.random import fold, generator, normal, stream
from turnout.core.registry import Family, Registered
from turnout.core.types import Report
from turnout.core.updates import Updates
from turnout.data.federated import Shards
from turnout.distributed.updates import Sharded

_LOSSES = ("loss", "start_loss", "appeal_gap")
"""Reported figures that are losses."""


@dataclass(frozen=True)
class Attack(Registered):
    """Base class of attacks: clients who change their labels, what they send, or both, alone or together.

    Args:
        fraction: of the clients, drawn once by the run's seed; their number is rounded.

    Raises:
        ConfigurationError: for a fraction that is no probability.
    """

    family = Family("behaviour", "behaviours", ("turnout.population.behaviour",))

    fraction: float = 0.1

    colludes: ClassVar[bool] = False
    """True where attackers know what honest clients send in the same step; `forged` then says what they send."""

    def __post_init__(self) -> None:
        probability("fraction", self.fraction)

    def poisoned(self, labels: torch.Tensor, num_classes: int | None) -> torch.Tensor:
        """Return the labels that attackers train on, of their own ones."""
        del num_classes
        return labels

    def corrupted(self, report: Report, rows: np.ndarray, key: int) -> Report:
        """Return the reports as they are sent, those in `rows` by attackers, who know no others.

        Args:
            report: the reports.
            rows: which are the attackers', int64, at least one.
            key: of their random numbers.
        """
        del rows, key
        return report

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update ``[P]`` that all attackers of a step send, if they collude."""
        raise NotImplementedError

    def bind(self, num_clients: int, seed: int = 0) -> BoundAttack:
        """Draw the attackers among N clients."""
        attackers = np.zeros(num_clients, dtype=bool)
        number = round(self.fraction * num_clients)
        attackers[generator("byzantine clients", seed).choice(num_clients, number, replace=False)] = True
        return BoundAttack(self, attackers, stream("byzantine noise", seed))


@dataclass(frozen=True)
class Byzantine(Attack, name="byzantine"):
    """Some clients send ``scale * Delta + noise * ||Delta|| * e``, and claim losses that are too large by `inflation`.

    e is Gaussian, of expected squared length 1 (variance 1/P for each of the P coordinates). They are honest until then:
    they train as everybody does, on their own data. What they send they change after all guards, because an attacker does
    not clip itself; so guards on the client do not stop one, and what a server does to reports may. Numbers that overflow are
    sent as the largest finite ones. What is only summed (control variates) they leave alone. They are always in the pool of
    an `Opting` population.

    The defaults are MaxFL's attack (table 2), whose size the paper leaves open. ``scale=-1`` with nothing else flips the
    sign of updates, ``scale=10`` enlarges them. Clients whose labels are flipped are a matter of the data
    (``split(flip_labels=...)``).

    Args:
        fraction: of the clients, drawn once by the run's seed; their number is rounded.
        inflation: what is added to the losses that they report.
        noise: length of the noise, relative to that of the update.
        scale: what the update is multiplied by.

    Raises:
        ConfigurationError: for numbers out of range, or an attack that changes nothing.

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    fraction: float = 0.1
    inflation: float = 100.0
    noise: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("inflation", self.inflation)
        not_negative("noise", self.noise)
        if not is_finite(self.scale):
            raise refuse("scale", given=self.scale, needed="a finite number")
        if self.inflation == 0 and self.noise == 0 and self.scale == 1:
            raise ConfigurationError("this attack changes nothing: write inflation, noise or scale, or behaviour=None")

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
        """Return scaled updates with noise, ``[B, P]``; the noise depends on (seed, version, client) alone."""
        changed = (self.scale * delta.double()).to(delta.dtype)
        if self.noise and delta.shape[1]:
            keys = to_device(fold(key, versions, clients), delta.device)
            bits = fold(keys[:, None], torch.arange(delta.shape[1], device=delta.device))
            length = torch.linalg.vector_norm(delta, dim=1, keepdim=True, dtype=torch.float64)
            changed += (self.noise * length / math.sqrt(delta.shape[1]) * normal(bits)).to(delta.dtype)
        return changed


@Attack.family.register
def sign_flipping(fraction: float = 0.1) -> Byzantine:
    """Byzantine clients who send the opposite of their update."""
    return Byzantine(fraction, inflation=0.0, noise=0.0, scale=-1.0)


@Attack.family.register
def scaled_updates(fraction: float = 0.1, scale: float = 10.0) -> Byzantine:
    """Byzantine clients who send a multiple of their update."""
    return Byzantine(fraction, inflation=0.0, noise=0.0, scale=scale)


@Attack.family.register
def random_updates(fraction: float = 0.1) -> Byzantine:
    """Byzantine clients who send Gaussian noise, as long as their update."""
    return Byzantine(fraction, inflation=0.0, noise=1.0, scale=0.0)


@dataclass(frozen=True, eq=False)
class Honest:
    """The knowledge of colluding attackers about a step.

    Attributes:
        updates: those of all clients of the step, attackers included, ``[B, P]``.
        rows: which of them are honest and finite, int64, at least one.
        num_attackers: how many of them are not.
        direction: what the server makes of the step's updates with equal weights, ``[P]``, if all attackers send a vector
            ``[P]``.
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
        """Return the standard deviation of each coordinate over honest updates, float64 ``[P]``; 0 of a single one."""
        if len(self.rows) == 1:
            return self.mean().zero_()
        return self.updates.columnwise(lambda columns: columns[self.rows].double().std(dim=0))


@dataclass(frozen=True, eq=False)
class BoundAttack:
    """An attack for the N clients of one run.

    Attributes:
        options: the attack.
        attackers: who they are, bool ``[N]``.
    """

    options: Attack
    attackers: np.ndarray
    key: int

    def sent(self, report: Report) -> Report:
        """Return the reports as they leave the clients: those of attackers changed, the others untouched."""
        rows = np.flatnonzero(self.attackers[report.client])
        return self.options.corrupted(report, rows, self.key) if len(rows) else report

    def poisoned(self, train: Shards, num_classes: int | None) -> Shards:
        """Return what clients train on: the others' examples, and those of attackers with the labels they choose."""
        owner = np.repeat(self.attackers, train.sizes)
        rows = to_device(np.flatnonzero(owner), train.y.device)
        labels = train.y[rows]
        changed = self.options.poisoned(labels, num_classes)
        return train if changed is labels else replace(train, y=train.y.index_copy(0, rows, changed))

    def colluded(self, report: Report, direction: Callable[[Report], torch.Tensor]) -> Report:
        """Return all reports of a step as they reach the server, once attackers know those of the others.

        Args:
            report: the reports, none of them summed yet.
            direction: what the server makes of reports that weigh alike.
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
            return replace(report, delta=_replaced(report.delta, which, vector), good=None)

        honest = Honest(
            report.updates,
            to_device(np.asarray(known), device),
            int(attacking.sum()),
            lambda vector: direction(with_forged(vector)),
        )
        return with_forged(self.options.forged(honest))


def _replaced(rows: Any, which: torch.Tensor, vector: torch.Tensor) -> Any:
    """Return the rows, with `vector` in place of those in `which`, bool ``[B]``."""
    if isinstance(rows, Sharded):
        return Sharded(_replaced(rows.local, which[rows.index], vector), rows.index, len(rows))
    return torch.where(which[:, None], torch.nan_to_num(vector.to(rows.dtype)), rows)


def _finite(changed: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """Return what an attacker sends, limited to the largest finite numbers of its type where its original is finite.

    An attacker settles its memory by the original report. The server would drop a report that overflows, and its mean of what
    clients keep would then differ from their mean.
    """
    return torch.where(original.isfinite(), torch.nan_to_num(changed), original)
