"""Group clients with the same distributions of delays, and read groups from tables of device profiles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, nearest, refuse
from turnout.core.other_names import ExplainsArguments
from turnout.core.random import generator
from turnout.core.ranges import Positive
from turnout.population.delay import Constant, Delay
from turnout.population.table import by_number, cells, clients, numbered, numbers, read_table

DELAYS, BANDWIDTHS = ("compute", "upload", "download"), ("upload_bandwidth", "download_bandwidth")


def _check_delay(name: str, value: object) -> None:
    """Check that an option is a `Delay`."""
    if not isinstance(value, Delay):
        hint = f"Constant({value})" if isinstance(value, int | float) else "Uniform(1, 2)"
        raise refuse(name, given=value, needed="a distribution of delays", instead=f"Write delay.{hint}")


Distribution = Annotated[Delay, _check_delay]
"""A distribution of delays."""


@dataclass(frozen=True)
class Group(ExplainsArguments):
    """Clients whose delays have the same distributions.

    Attributes:
        share: relative size: a group of 10 beside a group of 5 has two thirds of the clients.
        compute: seconds of a local step or of a task; None is that of `Speed`, as for the following options.
        upload: latency of sending a report in seconds.
        download: latency of receiving the model in seconds.
        upload_bandwidth: bytes per second.
        download_bandwidth: bytes per second.
        clients: its clients, in place of a share: their names in the data, or numbers from 0 on.
        name: name for messages.

    Raises:
        ConfigurationError: if a share or bandwidth is not > 0, an option is not a delay, or a group is empty.

    Example:
        >>> import numpy as np, turnout as to
        >>> groups = (to.speed.Group(2, compute=to.delay.Constant(1)), to.speed.Group(1, compute=to.delay.Constant(10)))
        >>> bound = to.speed.Speed(per="task", groups=groups).bind(num_clients=3)
        >>> bound.seconds(np.arange(3), tasks=np.zeros(3, dtype=int)).compute.tolist()
        [1.0, 1.0, 10.0]
    """

    share: Positive = 1.0
    compute: Distribution | None = None
    upload: Distribution | None = None
    download: Distribution | None = None
    upload_bandwidth: Positive | None = None
    download_bandwidth: Positive | None = None
    clients: tuple[int | str, ...] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.clients is not None:
            object.__setattr__(self, "clients", tuple(self.clients))
            if not self.clients:
                raise refuse("clients", given=self.clients, needed="names or numbers, or None to go by share")
            for client in self.clients:
                if not isinstance(client, str):
                    count("clients", client, least=0, instead="Client numbers start at 0")


def assign(groups: Sequence[Group], num_clients: int, shuffled: bool, seed: int) -> np.ndarray:
    """Return the group of each of N clients, int64 ``[N]``.

    Groups with `clients` get these. The others are divided among the groups with a share in the order of client numbers;
    group g ends at client ``round(N * (share_1 + ... + share_g) / total)`` of them (halves to even). `shuffled` assigns the
    same sizes at random.

    Raises:
        ConfigurationError: if a client is named twice or does not exist, or clients are left without a group.
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


def unnamed(groups: Sequence[Group], names: Sequence[str] | None) -> tuple[Group, ...]:
    """Return groups with numbers in place of names of clients.

    Raises:
        ConfigurationError: if a name is not a client that trains.
        DataError: if names stand beside numbers, or none of the names is a client of the data.
    """
    members = [client for group in groups for client in group.clients or ()]
    number = numbered(clients(members, "groups"), names, "groups") if members else None
    if number is None:
        return tuple(groups)
    if (number < 0).any():
        raise refuse("clients of groups", given=members[int(np.argmin(number))], needed="names of clients that train")
    rest = iter(number.tolist())
    return tuple(group if group.clients is None else replace(group, clients=tuple(islice(rest, len(group.clients))))
                 for group in groups)  # fmt: skip


def _named(groups: Sequence[Group], num_clients: int) -> np.ndarray:
    """Return the group that names each client, -1 for none, int64 ``[N]``."""
    group = np.full(num_clients, -1, dtype=np.int64)
    for g, members in enumerate(groups):
        if members.clients is None:
            continue
        named = by_number(clients(members.clients, "groups"), "groups")
        if named.max() >= num_clients:
            raise refuse(f"clients of {_name(groups, g)}", given=int(named.max()), needed=f"less than {num_clients}")
        if (group[named] >= 0).any() or len(np.unique(named)) < len(named):
            raise ConfigurationError(f"clients of {_name(groups, g)}: a client is named twice: name each once")
        group[named] = g
    return group


def _name(groups: Sequence[Group], g: int) -> str:
    return f"group {groups[g].name or g}"


_NUMBERS = ("share", "seconds_per_step", "upload_bandwidth", "download_bandwidth", "latency")
_COLUMNS = (*_NUMBERS, "clients")


def device_profiles(table: str | os.PathLike[str] | Mapping[str, Mapping[str, Any]]) -> tuple[Group, ...]:
    """Make groups of clients from a table of device profiles, one for each row.

    Args:
        table: path of a CSV or Parquet file with a column ``profile`` (a name) and the columns below, or a mapping from
            names to mappings from these columns. Only ``seconds_per_step`` is needed.

            - ``seconds_per_step``: computing time of a local step (constant).
            - ``share``: relative number of clients, by default 1; or ``clients``: their names in the data or numbers,
              ``3;7;8`` in a file.
            - ``upload_bandwidth``, ``download_bandwidth``: bytes per second, by default unlimited.
            - ``latency``: seconds of each transfer, by default 0.

    Raises:
        ConfigurationError: if the file is of another kind, or columns are unknown.
        DataError: if a file is missing or damaged, or a cell is not a number in range.

    Example:
        >>> import turnout as to
        >>> phones = {"fast": {"seconds_per_step": 0.1, "share": 3}, "slow": {"seconds_per_step": 2.0}}
        >>> [(group.name, group.share, group.compute.seconds) for group in to.speed.device_profiles(phones)]
        [('fast', 3.0, 0.1), ('slow', 1.0, 2.0)]
    """
    if isinstance(table, Mapping):
        what, names, rows = "device profiles", list(table), list(table.values())
        for name, row in table.items():
            for column in row:
                if column not in _COLUMNS:
                    raise ConfigurationError(f"{what}, {name}: unknown {column!r}: {nearest(column, _COLUMNS)}")
    else:
        what = f"device profiles {os.fspath(table)}"
        columns = read_table(
            os.fspath(table), "device profiles", ("profile", "seconds_per_step"), _COLUMNS, ("clients",)
        )
        names = [str(name) for name in cells(columns.pop("profile"))]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*map(cells, columns.values()), strict=True)]
    return tuple(_group(name, row, f"{what}, profile {name!r}") for name, row in zip(names, rows, strict=True))


def _group(name: str, row: Mapping[str, Any], what: str) -> Group:
    """Convert one profile to a group."""
    cell_of = {column: value for column, value in row.items() if value is not None}
    values = {column: float(numbers([cell_of[column]], column, what)[0]) for column in _NUMBERS if column in cell_of}
    for column in _NUMBERS[:-1]:
        if values.get(column) == 0:
            raise DataError(f"{what}: got 0 as {column!r}, needed a number > 0")
    if "seconds_per_step" not in values:
        raise DataError(f"{what}: it has no 'seconds_per_step'")
    latency = Constant(values.get("latency", 0.0))
    return Group(
        share=values.get("share", 1.0),
        compute=Constant(values["seconds_per_step"]),
        upload=latency,
        download=latency,
        upload_bandwidth=values.get("upload_bandwidth"),
        download_bandwidth=values.get("download_bandwidth"),
        clients=_clients(cell_of["clients"], what) if "clients" in cell_of else None,
        name=name,
    )


def _clients(cell: Any, what: str) -> tuple[int | str, ...]:
    """Parse names or numbers of clients from ``3;7;8``, one number, or a sequence."""
    parts = cell.split(";") if isinstance(cell, str) else [cell] if isinstance(cell, int | float) else list(cell)
    return tuple(clients([part.strip() if isinstance(part, str) else part for part in parts], what).tolist())
