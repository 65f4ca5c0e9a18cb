"""Recorded durations."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.checks import DataError
from turnout.population import RecordedSpeed

from ..logs import logged

ROWS = ((1, 5.0), (0, 1.0), (1, 7.0), (0, 2.0), (0, 3.0))


def total(speed: RecordedSpeed, num_clients: int, tasks: list[tuple[int, int]], seed: int = 0) -> list[float]:
    clients, numbers = np.array(tasks).T
    return speed.bind(num_clients, seed).seconds(clients, numbers).total.tolist()


def test_rows_are_replayed_cyclically():
    tasks = [(0, k) for k in range(7)] + [(1, k) for k in range(3)]
    assert total(RecordedSpeed(ROWS), 2, tasks) == [1, 2, 3, 1, 2, 3, 1, 5, 7, 5]


def test_recording_has_compute_and_communication_times(tmp_path: Path):
    rows = ((0, 1.0, 2.0, 3.0), (1, 4.0, 5.0, 6.0))
    file = tmp_path / "durations.csv"
    file.write_text("client,upload,compute,download\n0,3,2,1\n1,6,5,4\n")
    for speed in (RecordedSpeed(rows), RecordedSpeed(str(file))):
        took = speed.bind(2).seconds(np.arange(2), np.zeros(2, dtype=np.int64), 10, bytes_up=10**9)
        np.testing.assert_array_equal([took.download, took.compute, took.upload], [[1, 4], [2, 5], [3, 6]])
    per_step = RecordedSpeed(rows, per="step").bind(2)
    np.testing.assert_array_equal(per_step.seconds(np.arange(2), np.zeros(2, dtype=np.int64), 10).compute, [20, 50])


def test_file_without_communication_times(tmp_path: Path):
    file = tmp_path / "durations.csv"
    file.write_text("client,compute\n0,3\n0,2.5\n")
    assert total(RecordedSpeed(str(file)), 1, [(0, 0), (0, 1)]) == [3.0, 2.5]


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 100)), min_size=1, max_size=30).map(tuple))
def test_rows_of_any_values(rows):
    own = {n: [seconds for client, seconds in rows if client == n] for n in range(4)}
    missing = [n for n in range(4) if not own[n]]
    speed = RecordedSpeed(rows)
    if missing:
        with pytest.raises(DataError, match=rf"client {missing[0]} of 4 has no row: write drawn=True"):
            speed.bind(4)
        return
    for n in range(4):
        expected = [own[n][k % len(own[n])] for k in range(12)]
        assert total(speed, 4, [(n, k) for k in range(12)]) == expected


def test_drawn_clients_replay_one_recorded_client_each():
    speed = RecordedSpeed(((3, 1.0), (3, 2.0), (9, 5.0), (9, 7.0)), drawn=True)
    seen = set()
    for n in range(60):
        two = tuple(total(speed, 60, [(n, 0), (n, 1), (n, 2)]))
        assert two in {(1, 2, 1), (2, 1, 2), (5, 7, 5), (7, 5, 7)}
        seen.add(two)
    assert len(seen) == 4
    assert total(speed, 60, [(n, 0) for n in range(60)]) != total(speed, 60, [(n, 0) for n in range(60)], seed=1)


def test_seconds_per_step_equal_the_means():
    np.testing.assert_allclose(RecordedSpeed(ROWS, per="step").bind(2).seconds_per_step, [2.0, 6.0])
    with pytest.raises(ValueError, match=r"recorded times are per task: write per='step' if they are"):
        _ = RecordedSpeed(ROWS).bind(2).seconds_per_step


@given(
    lengths=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    q=st.sampled_from([0.0, 0.1, 0.5, 2 / 3, 0.99, 1.0]),
    drawn=st.booleans(),
)
def test_communication_quantiles_equal_those_of_rows(lengths, q, drawn):
    rng = np.random.default_rng(lengths)
    rows = [(n, *rng.uniform(0.1, 9, 3).tolist()) for n, length in enumerate(lengths) for _ in range(length)]
    bound = RecordedSpeed(tuple(rows), drawn=drawn).bind(2 if drawn else 3)
    at = bound.communication_quantile(q)
    for client in range(bound.num_clients):
        numbers = np.arange(bound.length[client])
        took = bound.seconds(np.full(len(numbers), client), numbers)
        expected = np.quantile(took.upload + took.download, q, method="inverted_cdf")
        assert at[client] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ((), r"it has no rows"),
        (((0,),), r"row 1: got \(0,\), needed \(client, compute\) or \(client, download, compute, upload\)"),
        (((0, 1.0), "ab"), r"row 2: got 'ab'"),
        (((0.5, 1.0),), r"row 1: got 0\.5 as 'client', needed a whole number >= 0"),
        (((-1, 1.0),), r"row 1: got -1 as 'client'"),
        (((0, 1.0), (0, -2.0)), r"row 2: got -2\.0 as 'compute', needed a finite number >= 0"),
        (((0, float("nan")),), r"row 1: got nan as 'compute'"),
        (((0, 0.0),), r"row 1: the task takes 0 seconds, needed more"),
        ("durations.json", r"needed a file that ends in \.csv or \.parquet"),
        (3, r"recorded speed: got 3, needed a path or rows"),
    ],
)
def test_invalid_tables_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        RecordedSpeed(table)


def test_rows_of_clients_that_the_data_do_not_have_are_named():
    with logged(
        "recorded speed: 2 of its clients have numbers from 2 on, which no client of the data has, and are not used"
    ):
        RecordedSpeed(((0, 1.0), (1, 1.0), (2, 1.0), (7, 1.0))).bind(2)


def test_unknown_unit_is_refused():
    with pytest.raises(ValueError, match=r"unknown value of per 'epoch'"):
        RecordedSpeed(ROWS, per="epoch")  # type: ignore[arg-type]


def test_missing_file_is_refused_when_bound(tmp_path: Path):
    speed = RecordedSpeed(str(tmp_path / "durations.csv"))
    with pytest.raises(DataError, match=r"durations\.csv: no such file"):
        speed.bind(3)


def test_quantile_outside_0_1_is_refused():
    with pytest.raises(ValueError, match=r"q: got -1, needed a probability"):
        RecordedSpeed(ROWS).bind(2).communication_quantile(-1)
