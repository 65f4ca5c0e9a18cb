"""Groups of clients who are alike, and who belongs to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, count, positive, refuse
from turnout.core.random import generator
from turnout.population.delay import Delay

DELAYS, BANDWIDTHS = ("compute", "upload", "download"), ("upload_bandwidth", "download_bandwidth")


@dataclass(frozen=True)
class Group:
    """Clients whose delays have the same distributions.

    Attributes:
        share: its size relative to the other groups: 10 beside a group of 5 is two thirds of the clients, however many
            there are.
        compute: seconds of a local step or of a task; None is what `Speed` says for all.
        upload: seconds that sending a report takes beside its bytes; None is what `Speed` says.
        download: seconds that receiving the model takes beside its bytes; None is what `Speed` says.
        upload_bandwidth: bytes per second; None is what `Speed` says.
        download_bandwidth: bytes per second; None is what `Speed` says.
        clients: the numbers of its clients, in place of a share.
        name: what to call it, in messages.

    Raises:
        ConfigurationError: for a share or bandwidth that is not > 0, something that is no delay, or no clients.
    """

    share: float = 1.0
    compute: Delay | None = None
    upload: Delay | None = None
    download: Delay | None = None
    upload_bandwidth: float | None = None
    download_bandwidth: float | None = None
    clients: tuple[int, ...] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        positive("share", self.share)
        check_parts(self, optional=True)
        if self.clients is not None:
            object.__setattr__(self, "clients", tuple(self.clients))
            if not self.clients:
                raise refuse("clients", given=self.clients, needed="client numbers, or None to go by share")
            for client in self.clients:
                count("clients", client, least=0, instead="Client numbers start at 0")


def check_parts(piece: object, *, optional: bool = False) -> None:
    """Refuse what is not a `Delay` among the delays of a piece, and bandwidths that are not > 0."""
    for name in DELAYS:
        delay = getattr(piece, name)
        if not isinstance(delay, Delay) and not (optional and delay is None):
            hint = f"Constant({delay})" if isinstance(delay, int | float) else "Uniform(1, 2)"
            raise refuse(name, given=delay, needed="a distribution of delays", instead=f"Write delay.{hint}")
    for name in BANDWIDTHS:
        if getattr(piece, name) is not None:
            positive(name, getattr(piece, name))


def assign(groups: Sequence[Group], num_clients: int, shuffled: bool, seed: int) -> np.ndarray:
    """Return the group of each of N clients, int64 ``[N]``.

    Clients that groups name go there. The others are given to the remaining groups in the order of client numbers, so
    that the last group holds the last ones; group g ends at client ``round(N * (share_1 + ... + share_g) / total)`` of
    them (halves to even). `shuffled` gives the same sizes to clients drawn at random.

    Raises:
        ConfigurationError: where a client is named twice or does not exist, or nobody serves those that are not named.
    """
    count("num_clients", num_clients)
    group = _named(groups, num_clients)
    rest, sharing = np.flatnonzero(group < 0), [g for g, members in enumerate(groups) if members.clients is None]
    if not sharing and len(rest):
        raise ConfigurationError(
            f"no group has client {rest[0]}: name all of 0..{num_clients - 1}, or add a group with a share"
        )
    if shuffled:
        generator("speed groups", seed).shuffle(rest)
    shares = np.cumsum([groups[g].share for g in sharing])
    ends = np.rint(len(rest) * shares / shares[-1]).astype(np.int64) if sharing else np.zeros(0, dtype=np.int64)
    group[rest] = np.repeat(np.array(sharing, dtype=np.int64), np.diff(ends, prepend=0))
    group.setflags(write=False)
    return group


def _named(groups: Sequence[Group], num_clients: int) -> np.ndarray:
    """Return the group that names each client, -1 where none does, int64 ``[N]``."""
    group = np.full(num_clients, -1, dtype=np.int64)
    for g, members in enumerate(groups):
        if members.clients is None:
            continue
        named = np.array(members.clients, dtype=np.int64)
        if named.max() >= num_clients:
            raise refuse(f"clients of {_name(groups, g)}", given=int(named.max()), needed=f"less than {num_clients}")
        if (group[named] >= 0).any() or len(np.unique(named)) < len(named):
            raise ConfigurationError(f"clients of {_name(groups, g)}: a client is named twice: name each once")
        group[named] = g
    return group


def _name(groups: Sequence[Group], g: int) -> str:
    return f"group {groups[g].name or g}"
