"""Malformed files that describe clients are read or refused with an error of this package."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from turnout.core.checks import DataError, TurnoutError
from turnout.population import (  # fmt: skip
    RecordedSpeed,
    TimedTrace,
    Trace,
    device_profiles,
    fedscale_availability,
    fedscale_speed,
)
from turnout.population.requirement import GivenRequirement

ODD = [None, True, -1, 1.5, 10**12, 1e30, 10**400, 1e400, "x", "", [], [1], {}]
"""Cells of types and sizes that a column does not have."""

READERS = {
    "trace": (lambda table: Trace(table).bind(3), {"client": 0, "from": 0, "to": 1}),
    "timed": (lambda table: TimedTrace(table).bind(3), {"client": 0, "from": 0, "to": 1}),
    "speed": (lambda table: RecordedSpeed(table).bind(1), {"client": 0, "compute": 1.0}),
    "profiles": (device_profiles, {"profile": "a", "seconds_per_step": 1.0}),
}


def attempt(read, *arguments) -> None:
    """Read something; an error of any other kind than the package's own fails the test."""
    try:
        read(*arguments)
    except TurnoutError as error:
        str(error).encode()


def damages(content: bytes, seed: int = 0):
    """Yield a file's content cut off, and with flipped bits."""
    rng = np.random.default_rng(seed)
    yield from (content[: int(end)] for end in rng.integers(0, len(content), 20))
    for _ in range(60):
        flipped = bytearray(content)
        flipped[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        yield bytes(flipped)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("kind", READERS)
def test_malformed_tables_of_clients(tmp_path, kind, ending):
    read, row = READERS[kind]
    path = tmp_path / f"table.{ending}"

    def write(table: pa.Table) -> None:
        (csv.write_csv if ending == "csv" else parquet.write_table)(table, path)

    write(pa.table({name: [cell] for name, cell in row.items()}))
    read(str(path))
    for content in damages(path.read_bytes()):
        path.write_bytes(content)
        attempt(read, str(path))
    for name in row:
        for odd in (10**12, 2**62, 1e30, -1, 1.5, None, "x", True):
            write(pa.table({**{key: [cell] for key, cell in row.items()}, name: [odd]}))
            attempt(read, str(path))
    write(pa.table([[cell] for cell in row.values()] + [[0]], [*row, next(iter(row))]))
    with pytest.raises(DataError, match=f"2 columns are called '{next(iter(row))}'"):
        read(str(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="is a folder, needed a file"):
        read(str(path))


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_rows_of_any_type(odd):
    for place in range(3):
        rows = [0, 0, 1]
        rows[place] = odd
        attempt(lambda rows: Trace(rows).bind(3), (tuple(rows),))
        attempt(lambda rows: TimedTrace(rows).bind(3), (tuple(rows),))
        attempt(lambda rows: RecordedSpeed(rows).bind(3), (tuple(rows[1:]),))
    for rows in (odd, (odd,), ((odd,),)):
        attempt(lambda rows: Trace(rows).bind(3), rows)
        attempt(lambda rows: TimedTrace(rows).bind(3), rows)
        attempt(lambda rows: RecordedSpeed(rows).bind(3), rows)


@pytest.mark.parametrize("client", [10**12, 2**61, 10**30])
def test_gaps_in_client_numbers_are_closed(client, tmp_path):
    for read, row in (
        (lambda rows: TimedTrace(rows).bind(3), (client, 0, 1)),
        (lambda rows: Trace(rows).bind(3), (client, 0, 1)),
        (lambda rows: RecordedSpeed(rows).bind(3), (client, 1.0)),
    ):
        with pytest.raises(DataError, match=r"devices, needed at most|no such client|needed|has no row"):
            read((row,))
    path = tmp_path / "requirements.csv"
    path.write_text(f"client,requirement\n0,0.5\n{client},0.5\n")
    with pytest.raises(DataError, match=r"client 1 has 0 rows|needed a whole number"):
        GivenRequirement(str(path)).bind(2, None)


def test_unnumberable_recording_is_refused():
    with pytest.raises(DataError, match=r"9,000,000 devices over 1,000,000,000,000 seconds are more than 64 bits"):
        TimedTrace(((8_999_999, 0, 10**12),), drawn=True).bind(3)
    with pytest.raises(DataError, match=r"it has 10,000,001 devices, needed at most 10,000,000: number devices from 0"):
        TimedTrace(((10_000_000, 0, 1),), drawn=True).bind(3)


def test_malformed_fedscale_pickles(tmp_path):
    endless: list[object] = []
    for _ in range(60):
        endless = [endless, endless]
    path = tmp_path / "trace.pickle"
    for read, entry in (
        (fedscale_availability, {"active": [0], "inactive": [600]}),
        (fedscale_speed, {"computation": 1.0, "communication": 1.0}),
    ):
        content = pickle.dumps({"a": entry})
        path.write_bytes(content)
        read(path)
        contents = list(damages(content))
        for odd in [*ODD, [10**400], [10**30], endless]:
            contents += [pickle.dumps(odd), pickle.dumps({"a": odd})]
            contents += [pickle.dumps({"a": entry | {key: odd}}) for key in entry]
        for content in contents:
            path.write_bytes(content)
            attempt(read, path)
    with pytest.raises(DataError, match="is a folder, needed a file"):
        fedscale_speed(tmp_path)
