"""Device profiles: kinds of devices, how fast each is, and how many clients have one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from turnout.core.checks import ConfigurationError, DataError, nearest
from turnout.population.delay import Constant
from turnout.population.speed.groups import Group
from turnout.population.table import cells, numbers, read_table

_NUMBERS = ("share", "seconds_per_step", "upload_bandwidth", "download_bandwidth", "latency")
_COLUMNS = (*_NUMBERS, "clients")


def device_profiles(table: str | os.PathLike[str] | Mapping[str, Mapping[str, Any]]) -> tuple[Group, ...]:
    """Make groups of clients from a table of device profiles, one for each row.

    Args:
        table: path of a CSV or Parquet file with a column ``profile`` (a name) and the columns below, or a mapping from
            names to mappings from these columns. Only ``seconds_per_step`` is needed.

            - ``seconds_per_step``: mean computing time of a local step (constant).
            - ``share``: relative number of clients, 1 if left out; or ``clients``: their numbers, ``3;7;8`` in a file.
            - ``upload_bandwidth``, ``download_bandwidth``: bytes per second; left out, bytes take no time.
            - ``latency``: seconds of each transfer beside its bytes, 0 if left out.

    Raises:
        ConfigurationError: for a path to another kind of file, or for columns that profiles do not have.
        DataError: for a file that is missing or damaged, or a cell that is not a number in range.
    """
    if isinstance(table, Mapping):
        what, names, rows = "device profiles", list(table), list(table.values())
        for name, row in table.items():
            for column in row:
                if column not in _COLUMNS:
                    raise ConfigurationError(f"{what}, {name}: unknown {column!r}: {nearest(column, _COLUMNS)}")
    else:
        what = f"device profiles {os.fspath(table)}"
        columns = read_table(os.fspath(table), "device profiles", ("profile", "seconds_per_step"), _COLUMNS)
        names = [str(name) for name in cells(columns.pop("profile"))]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*map(cells, columns.values()), strict=True)]
    return tuple(_group(name, row, f"{what}, profile {name!r}") for name, row in zip(names, rows, strict=True))


def _group(name: str, row: Mapping[str, Any], what: str) -> Group:
    """One profile as a group."""
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


def _clients(cell: Any, what: str) -> tuple[int, ...]:
    """Client numbers, from ``3;7;8``, from one number or from a sequence."""
    parts = cell.split(";") if isinstance(cell, str) else [cell] if isinstance(cell, int | float) else list(cell)
    try:
        whole = [int(part) if isinstance(part, str) else float(part) for part in parts]
    except (TypeError, ValueError) as error:
        raise DataError(f"{what}: got {cell!r} as 'clients', needed numbers such as 3;7;8") from error
    return tuple(numbers(whole, "clients", what, whole=True).tolist())
