"""Traces of availability by round."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from turnout.core.checks import DataError
from turnout.population import Trace

ROWS = ((2, 0, 4), (0, 3, 5), (2, 6, 10), (0, 0, 1))


def path(trace: Trace, num_clients: int, num_rounds: int) -> np.ndarray:
    bound = trace.bind(num_clients)
    return np.stack([bound.available(np.arange(num_clients), t) for t in range(num_rounds)])


def expected(rows, num_clients: int, horizon: int) -> np.ndarray:
    here = np.zeros((horizon, num_clients), dtype=bool)
    for client, start, end in rows:
        here[start:end, client] = True
    return here


rows_of_traces = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(1, 12)).map(lambda r: (r[0], r[1], r[1] + r[2])),
    min_size=1,
    max_size=15,
).map(tuple)


@settings(max_examples=60, deadline=None)
@given(rows=rows_of_traces)
def test_rows_may_be_unordered_and_overlap(rows):
    horizon = max(end for _, _, end in rows)
    once = expected(rows, 7, horizon)
    trace = Trace(rows)
    np.testing.assert_array_equal(path(trace, 7, 2 * horizon), np.concatenate([once, once]))
    np.testing.assert_allclose(trace.bind(7).rates, once.mean(axis=0))


def test_trace_repeats_or_ends_after_its_last_round():
    once = expected(ROWS, 4, 10)
    np.testing.assert_array_equal(path(Trace(ROWS), 4, 30), np.tile(once, (3, 1)))
    gone = path(Trace(ROWS, repeat=False), 4, 30)
    np.testing.assert_array_equal(gone[:10], once)
    assert not gone[10:].any()


@pytest.mark.parametrize("repeat", [True, False])
def test_trailing_empty_rounds_are_part_of_the_period(repeat):
    once = expected(ROWS, 4, 13)
    found = path(Trace(ROWS, repeat=repeat, rounds=13), 4, 26)
    np.testing.assert_array_equal(found, np.concatenate([once, once if repeat else np.zeros_like(once)]))
    np.testing.assert_allclose(Trace(ROWS, rounds=20).bind(4).rates, Trace(ROWS).bind(4).rates / 2)
    np.testing.assert_array_equal(path(Trace(ROWS, rounds=10), 4, 30), path(Trace(ROWS), 4, 30))


def test_too_few_rounds_for_the_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="row 3: got 10; the trace has rounds=9: write more, or leave it out"):
        Trace(ROWS, rounds=9)
    with pytest.raises(DataError, match="row 1: got 5; the trace has rounds=2"):
        Trace(str(write(tmp_path, "a.csv", "client,from,to\n0,1,5\n")), rounds=2).bind(3)
    with pytest.raises(ValueError, match="rounds: got 0, needed a whole number"):
        Trace(ROWS, rounds=0)


def test_client_without_rows_is_never_available():
    bound = Trace(ROWS).bind(5)
    assert not path(Trace(ROWS), 5, 20)[:, [1, 3, 4]].any()
    np.testing.assert_allclose(bound.rates, [0.3, 0, 0.8, 0, 0])


def test_lists_are_accepted_as_rows():
    assert Trace([list(row) for row in ROWS]) == Trace(ROWS)  # type: ignore[arg-type]


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def as_text(rows) -> str:
    return "device,client,from,to\n" + "".join(f"phone,{c},{s},{e}\n" for c, s, e in rows)


def test_csv_and_parquet_equal_rows(tmp_path):
    file = write(tmp_path, "trace.csv", as_text(ROWS))
    columns = {name: [row[i] for row in ROWS] for i, name in enumerate(("client", "from", "to"))}
    parquet.write_table(pa.table(columns), tmp_path / "trace.parquet")
    parquet.write_table(pa.table({k: [float(x) for x in v] for k, v in columns.items()}), tmp_path / "floats.parquet")
    for given_table in (file, str(file), tmp_path / "trace.parquet", tmp_path / "floats.parquet"):
        np.testing.assert_array_equal(path(Trace(given_table), 4, 20), path(Trace(ROWS), 4, 20))  # type: ignore[arg-type]
    assert Trace(file).table == str(file)  # type: ignore[arg-type]


BAD_ROWS = [
    ((0, 5, 5), r"row 2: from 5 to 5, needed a `to` greater than `from`"),
    ((0, 5, 3), r"row 2: from 5 to 3, needed a `to` greater than `from`"),
    ((0, -1, 3), r"row 2: got -1 as 'from', needed a whole number >= 0"),
    ((-1, 0, 3), r"row 2: got -1 as 'client', needed a whole number >= 0"),
    ((0, 0, 2**32), r"row 2: got 4294967296; a trace has less than 2\*\*32 rounds: write rounds, not nanoseconds"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_invalid_rows_are_refused_at_creation(row, message):
    with pytest.raises(DataError, match=message):
        Trace(((0, 0, 1), row))


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_invalid_rows_of_a_file_are_refused_when_bound(tmp_path, row, message):
    file = write(tmp_path, "trace.csv", as_text([(0, 0, 1), row]))
    with pytest.raises(DataError, match=message):
        Trace(str(file)).bind(4)


@pytest.mark.parametrize("row", [(0, 1), (0, 1.5, 2), (0, "x", 2), 7, (0, True, 2), (0, 1, 2**80)])
def test_rows_without_three_integers_are_refused(row):
    with pytest.raises(DataError, match=r"row 2: got .*, needed (\(client, from, to\)|a whole number)"):
        Trace(((0, 0, 1), row))


def test_empty_trace_is_refused(tmp_path):
    with pytest.raises(DataError, match="has no rows"):
        Trace(())
    with pytest.raises(DataError, match="has no rows"):
        Trace(str(write(tmp_path, "empty.csv", "client,from,to\n"))).bind(3)


def test_unknown_client_is_refused():
    with pytest.raises(DataError, match="row 1: got 2; no such client among 2"):
        Trace(ROWS).bind(2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "client,from\n0,1\n", r"got columns \['client', 'from'\], needed \['client', 'from', 'to'\]"),
        ("a.csv", "client,from,to\n0,1,2\n1,x,3\n", "row 2: got 'x' as 'from', needed a whole number"),
        ("a.csv", "client,from,to\n0,1,2\n1,1,2.5\n", "row 2: got '2.5' as 'to', needed a whole number"),
        ("a.csv", "client,from,to\n0,1,2\n0,1,1e30\n", r"row 2: got '1e30' as 'to', needed a whole number"),
        ("a.csv", "client,from,to\n0,1,2\n,1,2\n", "row 2: got None as 'client', needed a whole number"),
        ("a.csv", "", "a.csv: cannot be read"),
        ("a.parquet", "not parquet", "a.parquet: cannot be read"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        Trace(str(write(tmp_path, name, text))).bind(4)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        Trace(str(tmp_path / "gone.csv")).bind(4)


def test_non_table_is_refused():
    with pytest.raises(ValueError, match=r"trace a.txt: needed a file that ends in .csv or .parquet"):
        Trace("a.txt")
    with pytest.raises(ValueError, match="trace: got 5, needed a path or rows"):
        Trace(5)  # type: ignore[arg-type]
