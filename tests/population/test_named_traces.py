"""A row of a trace that names a client belongs to that client, whatever way the client and the times are written."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.population import TimedTrace, Trace

from ..logs import logged

START = 1_580_587_200
"""2020-02-01 20:00 UTC."""

NAMES = ("ann", "bob", "eve")
VISITS = ((0, 0, 3600), (1, 3600, 7200), (2, 7200, 14_400))
"""Client, and seconds from the start."""


def federation(names: Any = NAMES) -> to.data.FederatedData:
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")
    return to.data.from_arrays(x, np.arange(30) % 2, client_ids=np.repeat(names, 10)).split(test_fraction=0.0)


def present(availability: to.availability.Availability, rounds: int = 4) -> list[list[int]]:
    """Return who takes part in each round of a run."""
    data = federation()
    population = to.Population(availability=availability)
    run = to.Experiment(data=data, model=to.models.Logistic(), rounds=rounds, population=population, seed=3).run()
    by_round: list[list[int]] = [[] for _ in range(rounds)]
    for row in run.participation.to_pylist():
        by_round[row["round"] - 1].append(row["client"])
    return by_round


RIGHT = [[0], [1], [2], [2]]


def iso(second: int, zone: timezone = UTC) -> str:
    return datetime.fromtimestamp(START + second, zone).isoformat()


FORMS = {
    "numbers": VISITS,
    "names": tuple((NAMES[c], start, end) for c, start, end in VISITS),
    "Unix seconds": tuple((c, START + start, START + end) for c, start, end in VISITS),
    "ISO": tuple((c, iso(start), iso(end)) for c, start, end in VISITS),
    "zones": tuple((NAMES[c], iso(s), iso(e, timezone(timedelta(hours=-5)))) for c, s, e in VISITS),
    "no zone": tuple((c, iso(start)[:-6], iso(end)[:-6]) for c, start, end in VISITS),
    "datetimes": tuple((c, *(datetime.fromtimestamp(START + t, UTC) for t in visit)) for c, *visit in VISITS),
    "datetime64": tuple((c, *(np.datetime64(START + t, "s") for t in visit)) for c, *visit in VISITS),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_clients_and_times_gives_each_client_its_rows(form: str) -> None:
    assert present(TimedTrace(FORMS[form], seconds_per_round=3600)) == RIGHT


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_and_frames_are_read_alike(form: str, ending: str, tmp_path: Any) -> None:
    columns = dict(zip(("client", "from", "to"), map(list, zip(*FORMS[form], strict=True)), strict=True))
    path = tmp_path / f"trace.{ending}"
    if ending == "csv":
        rows = zip(*columns.values(), strict=True)
        path.write_text("client,from,to\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    else:
        pq.write_table(pa.table(columns), path)
    assert present(TimedTrace(path, seconds_per_round=3600)) == RIGHT
    assert present(TimedTrace(columns, seconds_per_round=3600)) == RIGHT
    assert present(TimedTrace(pa.table(columns), seconds_per_round=3600)) == RIGHT
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns)
    trace = TimedTrace(frame, seconds_per_round=3600)
    assert present(trace) == RIGHT
    assert hash(trace) == hash(TimedTrace(frame, seconds_per_round=3600))  # rows are plain


@pytest.mark.parametrize("seed", range(3))
def test_timed_trace_and_trace_keep_the_order_of_clients(seed: int) -> None:
    clock = TimedTrace(tuple((k, 600 * k, 600 * k + 600) for k in range(8))).bind(8, seed=seed)
    turns = Trace(tuple((k, k, k + 1) for k in range(8))).bind(8, seed=seed)
    for round in range(8):
        expected = np.arange(8) == round
        np.testing.assert_array_equal(clock.available(np.arange(8), round), expected)
        np.testing.assert_array_equal(turns.available(np.arange(8), round), expected)


def test_trace_in_rounds_takes_names() -> None:
    rows = (("ann", 0, 1), ("bob", 1, 2), ("eve", 2, 4))
    assert present(Trace(rows)) == RIGHT
    assert present(Trace({"client": ["eve", "ann"], "from": [2, 0], "to": [4, 2]})) == [[0], [0], [2], [2]]


def test_names_with_leading_zeros_are_no_numbers(tmp_path: Any) -> None:
    (tmp_path / "t.csv").write_text("client,from,to\n007,0,1\n01,1,2\n")
    bound = Trace(str(tmp_path / "t.csv")).of_clients(("01", "007")).bind(2)
    assert bound.available(np.arange(2), 0).tolist() == [False, True]


def test_names_of_clients_that_do_not_train_are_left_out() -> None:
    with logged("1 of its names are not clients that train, such as 'held out': their rows are left out"):
        trace = Trace((("ann", 0, 1), ("held out", 0, 4))).of_clients(NAMES)
    assert trace.table == ((0, 0, 1),)


@pytest.mark.parametrize("kind", [Trace, TimedTrace])
@pytest.mark.parametrize("names", [("1", "2", "3"), ("0", "2", "3"), ("10", "20", "30")])
def test_numbers_that_are_names_of_clients_are_these_clients(kind: Any, names: tuple[str, ...]) -> None:
    trace = kind(tuple((int(name), i, i + 1) for i, name in enumerate(names)))
    assert trace.of_clients(names).table == ((0, 0, 1), (1, 1, 2), (2, 2, 3))


def test_numbers_that_may_be_either_are_named() -> None:
    with logged(
        "trace: its numbers, such as 1, are read as names of the data's clients, not as their numbers from 0 on"
    ):
        assert Trace(((1, 0, 1), (2, 1, 2))).of_clients(("1", "2", "3")).table == ((0, 0, 1), (1, 1, 2))


def test_numbers_from_0_on_are_read_as_such_if_they_are_no_names() -> None:
    rows = ((0, 0, 1), (1, 1, 2))
    for names in (None, NAMES, ("1", "2", "3"), ("0", "1", "2"), ("7", "8")):
        assert Trace(rows).of_clients(names).table == rows


def test_numbers_of_clients_that_do_not_train_are_left_out() -> None:
    with logged("1 of its names are not clients that train, such as '12': their rows are left out"):
        assert Trace(((5, 0, 1), (12, 0, 4))).of_clients(("3", "5")).table == ((1, 0, 1),)


def test_start_says_when_round_0_begins() -> None:
    later = TimedTrace(FORMS["ISO"], seconds_per_round=3600, start=iso(3600))
    assert present(later, 3) == [[1], [2], [2]]
    assert present(TimedTrace(FORMS["Unix seconds"], seconds_per_round=3600, start=START + 3600), 3) == [[1], [2], [2]]
    assert present(TimedTrace(VISITS, seconds_per_round=3600, start=3600), 3) == [[1], [2], [2]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_seconds_from_the_start(unit: Any) -> None:
    kind = pa.duration(unit)
    begin, end = (pa.array([timedelta(seconds=second) for second in of]).cast(kind) for of in ((0, 600), (600, 1800)))
    bound = TimedTrace(pa.table({"client": [0, 1], "from": begin, "to": end}), seconds_per_round=600).bind(2)
    assert [bound.available(np.arange(2), round).tolist() for round in range(3)] == [
        [True, False],
        [False, True],
        [False, True],
    ]


def test_dates_of_arrow_are_their_midnights() -> None:
    days = [date(2024, 1, day) for day in (1, 2, 3)]
    trace = TimedTrace(pa.table({"client": [0, 1], "from": days[:2], "to": days[1:]}), seconds_per_round=43_200)
    assert present(trace, 4) == [[0], [0], [1], [1]]


def test_seconds_that_could_spell_dates_are_seconds_if_start_says_so() -> None:
    rows = ((0, 20240131, 20240201), (1, 20240201, 20240203))
    bound = TimedTrace(rows, seconds_per_round=1, start=0).bind(2)
    assert [bound.available(np.arange(2), second).tolist() for second in (20240130, 20240131, 20240202)] == [
        [False, False], [True, False], [False, True]
    ]  # fmt: skip
    assert TimedTrace((*rows, (1, 20240432, 20240500))).bind(2).rates.shape == (2,)  # one time spells no date


def test_unix_seconds_are_the_recording_of_days() -> None:
    rows = tuple(
        (c, START + d * 86_400 + 3600 * c, START + d * 86_400 + 3600 * (6 + c)) for c in range(3) for d in range(4)
    )
    bound = TimedTrace(rows, seconds_per_round=3600).bind(3)
    here = np.stack([bound.available(np.arange(3), round) for round in range(96)])
    assert here.sum() == 72
    np.testing.assert_array_equal(np.flatnonzero(here[:24, 2]), np.arange(2, 8))
    assert bound.period == 4 * 86_400


def test_pool_of_devices_is_drawn_by_an_option() -> None:
    rows = tuple((f"phone {k}", 600 * k, 600 * k + 600) for k in range(8))
    devices = [TimedTrace(rows, drawn=True).bind(16, seed=seed).devices.tolist() for seed in range(3)]
    assert all(sorted(drawn[:8]) == list(range(8)) == sorted(drawn[8:]) for drawn in devices)
    assert len(set(map(tuple, devices))) == 3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Trace(FORMS["Unix seconds"]),
            DataError,
            r"as if it were a time \(2020-02-01 20:00 UTC\).*write TimedTrace",
        ),
        (lambda: Trace(FORMS["ISO"]), DataError, "rounds count from 0: write TimedTrace for times"),
        (
            lambda: TimedTrace(tuple((c, 1000 * (START + s), 1000 * (START + e)) for c, s, e in VISITS)),
            DataError,
            "needed seconds: divide milliseconds by 1000",
        ),
        (lambda: TimedTrace(((0, iso(0), iso(9)), (1, iso(0)[:-6], iso(9)))), DataError, "row 2: .* has no time zone"),
        (lambda: TimedTrace(((0, "yesterday", 5),)), DataError, "row 1: got 'yesterday' as 'from'"),
        (
            lambda: TimedTrace(((0, 1, 5), ("ann", 1, 5))),
            DataError,
            "row 2: got 'ann' as 'client', needed a whole number",
        ),
        (
            lambda: TimedTrace(((0, 20240131, 20240201), (1, 20240201, 20240203))),
            DataError,
            r"numbers like 20240131, which spell dates .*: write dates as 2024-01-31 .*, or start=0 if they are seconds",
        ),
        (
            lambda: TimedTrace({"client": [0], "from": ["2024013108"], "to": ["2024013112"]}),
            DataError,
            r"numbers like 2024013108, .*, or start=2024013108 if they are seconds",
        ),
        (
            lambda: TimedTrace(((0, 202401310800, 202401311200),)),
            DataError,
            r"numbers like 202401310800, which spell dates",
        ),
        (
            lambda: TimedTrace(((0, 90_000, 100_000),), drawn=True).bind(3),
            DataError,
            r"no device is available in the first 1 day of the recording, .*: write start=",
        ),
        (
            lambda: TimedTrace(pa.table({"client": [0], "from": [time(8)], "to": [time(9)]})),
            DataError,
            r"row 1: got datetime.time\(8, 0\) as 'from', needed a whole number",
        ),
        (
            lambda: TimedTrace(pa.table({"client": [0], "from": [datetime(1969, 1, 1)], "to": [datetime(1971, 1, 1)]})),
            DataError,
            r"row 1: got -31536000 as 'from', needed a whole number >= 0",
        ),
        (
            lambda: Trace(((0, 20240131, 20240201),)),
            DataError,
            r"first round is 20240131, as if it were a time \(a date\).*write TimedTrace",
        ),
        (
            lambda: TimedTrace(FORMS["Unix seconds"], start=20200201),
            DataError,
            r"start: got 20200201, and the timed trace begins 49 years later, at 2020-02-01 20:00 UTC: write a date",
        ),
        (lambda: TimedTrace({"who": [0], "from": [0], "to": [1]}), DataError, "there is no 'client'"),
        (lambda: TimedTrace(VISITS, num_devices=3), ConfigurationError, "num_devices: each client has its own rows"),
        (
            lambda: TimedTrace(VISITS, correlated_with_labels=0.1),
            ConfigurationError,
            "write drawn=True to draw devices",
        ),
        (lambda: TimedTrace(VISITS).bind(2), DataError, r"row 3: got 2; no such client among 2 .*drawn=True"),
        (lambda: TimedTrace(VISITS, start=20_000), DataError, "start: got 20000, and the last row .* ends at 14400"),
        (
            lambda: TimedTrace(VISITS, start=cast("Any", 1.5)),
            ConfigurationError,
            "start: got 1.5, needed seconds, or a text such as",
        ),
        (
            lambda: Trace((("x", 0, 1),)).of_clients(NAMES),
            DataError,
            "names the clients 'x', and those of the data",
        ),
        (lambda: Trace((("x", 0, 1),)).of_clients(None), DataError, "those of the data are numbers only"),
        (lambda: Trace((("x", 0, 1),)).bind(3), DataError, "names the clients 'x', which data with these names number"),
    ],
)
def test_traces_that_cannot_be_meant_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_run_in_which_nobody_took_part_is_an_error() -> None:
    never = to.Population(availability=Trace(((0, 50, 60),)))
    experiment = to.Experiment(data=federation(), model=to.models.Logistic(), rounds=5, population=never)
    with pytest.raises(
        ConfigurationError, match=r"no client took part in any of 5 rounds.*another availability than Trace"
    ):
        experiment.run()


def test_private_runs_whose_participants_are_secret_end() -> None:
    from turnout.simulation.stall import check_participation

    history = to.History()
    history.record(round=1, participants=None, num_participants=None)
    population = to.Population(availability=Trace(((0, 50, 60),)))
    check_participation(history, to.Experiment(federation(), to.models.Logistic(), population=population))
