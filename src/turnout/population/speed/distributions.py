"""Model the speed of clients by distributions of delays: the same for all, by group, or with a factor per client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np

from turnout.core.checks import ConfigurationError, count, not_negative, probability, refuse
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import Positive
from turnout.population import delay
from turnout.population.delay import Constant, Delay, quantile_of_sum, standard_normal
from turnout.population.speed.durations import BoundSpeed, Durations, Seconds, SpeedModel
from turnout.population.speed.groups import BANDWIDTHS, DELAYS, Distribution, Group, assign, device_profiles, unnamed

Per = Literal["step", "task"]


def _spread(name: str, value: float) -> None:
    """Check the inequality of times."""
    not_negative(name, value)
    if value > 50:
        raise refuse(name, given=value, needed="at most 50, where factors are e^-400 to e^400 already")


Spread = Annotated[float, _spread]
"""The standard deviation of the logarithm of clients' factors."""

_LEGS = ("download delay", "compute delay", "upload delay")
_PURPOSES = (*_LEGS, "speed factor", "link factor")


@dataclass(frozen=True)
class Speed(SpeedModel, name="delays"):
    """Draw the duration of each task, ``download + compute + upload`` seconds::

        compute  = factor_n * C * (local steps if per == "step" else 1),  C ~ compute
        download = link_n * (D + bytes_down / download_bandwidth),        D ~ download
        upload   = link_n * (U + bytes_up / upload_bandwidth),            U ~ upload

    with C, D and U drawn for each task, and ``factor_n = exp(spread * N(0, 1))`` and ``link_n = exp(link_spread * N(0, 1))``
    drawn once for each client. All steps of a task have the same duration.

    Attributes:
        compute: distribution of the seconds of a local step, or of a task.
        upload: distribution of the latency of sending a report.
        download: distribution of the latency of receiving the model.
        per: unit of `compute`, ``"step"`` or ``"task"``.
        upload_bandwidth: bytes per second; None is unlimited.
        download_bandwidth: bytes per second; None is unlimited.
        groups: groups of clients with other delays, or the path of a table of them (see `device_profiles`); options that a
            group leaves out are those above. By shares, the first group has the first clients.
        shuffle_groups: False assigns groups to clients in the order of their numbers, True at random.
        spread: inequality of computing times; at 0.5 the fastest of 20 clients is about six times as fast as the slowest.
        link_spread: inequality of communication times.

    Raises:
        ConfigurationError: if an option is not a delay, numbers are out of range, or tasks have no duration.

    Example:
        >>> import numpy as np, turnout as to
        >>> speed = to.speed.Speed(compute=to.delay.Constant(2.0), upload=to.delay.Constant(0.5)).bind(num_clients=3)
        >>> speed.seconds(np.arange(3), np.zeros(3, dtype=int), num_steps=4).total.tolist()
        [8.5, 8.5, 8.5]
    """

    compute: Distribution = field(default_factory=Constant)
    upload: Distribution = field(default_factory=lambda: Constant(0.0))
    download: Distribution = field(default_factory=lambda: Constant(0.0))
    per: Per = "step"
    upload_bandwidth: Positive | None = None
    download_bandwidth: Positive | None = None
    groups: tuple[Group, ...] | str = ()
    shuffle_groups: bool = False
    spread: Spread = 0.0
    link_spread: Spread = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.groups, str | os.PathLike):
            object.__setattr__(self, "groups", os.fspath(self.groups))
            return
        object.__setattr__(self, "groups", tuple(self.groups))
        for group in self.groups:
            if not isinstance(group, Group):
                raise ConfigurationError(f"groups: got {group!r}, needed Group(share, compute=...) for each")
        self._resolved(self.groups)

    def of_clients(self, names: Sequence[str] | None) -> Speed:
        """Return the model with numbers in place of names of clients; reads the table of groups, if there is one."""
        groups = device_profiles(self.groups) if isinstance(self.groups, str) else self.groups
        return replace(self, groups=unnamed(groups, names))

    def bind(self, num_clients: int, seed: int = 0) -> BoundDelays:
        """Fit the model to N clients; reads the table of groups, if there is one."""
        count("num_clients", num_clients)
        groups = device_profiles(self.groups) if isinstance(self.groups, str) else self.groups
        group = np.broadcast_to(np.int64(0), (num_clients,))  # without groups, at the memory of one number
        if groups:
            group = assign(groups, num_clients, self.shuffle_groups, seed)
        keys = {purpose: stream(purpose, seed) for purpose in _PURPOSES}
        return BoundDelays(num_clients, self, self._resolved(groups), group, keys)

    def _resolved(self, groups: tuple[Group, ...]) -> tuple[Group, ...]:
        """Return the groups with all options filled in; a single one without groups."""
        resolved = []
        for group in groups or (Group(),):
            missing = [name for name in (*DELAYS, *BANDWIDTHS) if getattr(group, name) is None]
            resolved.append(replace(group, **{name: getattr(self, name) for name in missing}))
            if not any(delay.mean() > 0 for delay in _delays(resolved[-1])):
                raise ConfigurationError(
                    "compute, upload and download all take 0 seconds, so a client could work without end in no time: give "
                    "one of them a delay, such as delay.Constant(1)"
                )
        return tuple(resolved)


def _delays(group: Group) -> list[Delay]:
    """Return download, compute and upload of a group with all options filled in."""
    return [getattr(group, leg) for leg in ("download", "compute", "upload")]


UNEQUAL = Speed(compute=delay.Uniform(0.5, 1.5), per="task", spread=1.0)
"""Default speeds for paces that need a clock: the fastest of 100 clients is about 100 times as fast as the slowest."""


@dataclass(frozen=True, eq=False)
class BoundDelays(BoundSpeed):
    """`Speed` bound to N clients.

    Attributes:
        options: the options.
        devices: the groups, with all options filled in.
        group: index of the group of each client, int64 ``[N]``, read-only.
        keys: the random stream of each leg and factor.
    """

    options: Speed
    devices: tuple[Group, ...]
    group: np.ndarray
    keys: dict[str, int]

    def seconds(
        self,
        clients: np.ndarray,
        tasks: np.ndarray,
        num_steps: np.ndarray | int = 1,
        bytes_up: int = 0,
        bytes_down: int = 0,
    ) -> Durations:
        """Return the durations of B tasks; see `BoundSpeed`."""
        down, compute, up = (np.empty(len(clients)) for _ in range(3))
        group = self.group[clients]
        for g in np.unique(group) if len(self.devices) > 1 else range(min(len(clients), 1)):
            rows = np.flatnonzero(group == g) if len(self.devices) > 1 else slice(None)
            for seconds, distribution, leg in zip((down, compute, up), _delays(self.devices[g]), _LEGS, strict=True):
                seconds[rows] = distribution.draw(self.keys[leg], clients[rows], tasks[rows])
        link = self._factor("link factor", self.options.link_spread, clients)
        with np.errstate(over="ignore"):  # durations beyond the range of floating point are infinite
            if self.options.per == "step":
                compute *= num_steps
            return Durations(
                link * (down + self._transfer("download_bandwidth", bytes_down)[group]),
                compute * self._factor("speed factor", self.options.spread, clients),
                link * (up + self._transfer("upload_bandwidth", bytes_up)[group]),
            )

    @property
    def seconds_per_step(self) -> Seconds:
        """The mean computing time of one local step of each client, float64 ``[N]``."""
        if self.options.per != "step":
            raise ConfigurationError(
                "the time of a local step is not known, as compute is said per task: write Speed(compute=..., per='step')"
            )
        means = np.array([_delays(device)[1].mean() for device in self.devices])
        return means[self.group] * self._factor("speed factor", self.options.spread, np.arange(self.num_clients))

    def communication_quantile(self, q: float, bytes_up: int = 0, bytes_down: int = 0) -> Seconds:
        """Return the q-quantile of each client's time for download and upload together, float64 ``[N]``."""
        probability("q", q)
        latency = np.array([quantile_of_sum(device[0], device[2], q) for device in map(_delays, self.devices)])
        transfer = self._transfer("download_bandwidth", bytes_down) + self._transfer("upload_bandwidth", bytes_up)
        link = self._factor("link factor", self.options.link_spread, np.arange(self.num_clients))
        return link * (latency + transfer)[self.group]

    def _transfer(self, bandwidth: str, num_bytes: int) -> Seconds:
        """Return the time of transferring bytes in each group, in seconds."""
        widths = [getattr(device, bandwidth) for device in self.devices]
        return np.array([num_bytes / width if width else 0.0 for width in widths])

    def _factor(self, purpose: str, spread: float, clients: np.ndarray) -> np.ndarray | float:
        """Return the factors of `clients`, ``[B]``; 1 without spread."""
        if spread == 0:
            return 1.0
        # The center of the cell of a 53-bit number is never 0, where the factor would be 0.
        drawn = uniform(fold(self.keys[purpose], clients)) * (1 - 2**-53) + 2**-54
        return np.exp(spread * standard_normal(drawn))
