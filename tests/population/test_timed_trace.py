"""Timed traces of devices."""

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from reproductions.availability.fit import presence_figures

from turnout import ConfigurationError, DataError
from turnout.population import Flash, TimedTrace
from turnout.population.availability.recording import DAY
from turnout.population.diagnostics import presence

ROWS = ((0, 0, 1200), (0, 1100, 1300), (2, 599, 601), (2, 1800, 2400))
"""Of device 0 until 1300, of device 2 at 600 (and at 1800); device 1 is never there."""

WRONG: Any = 3
SHORT: Any = ((0, 1),)


def brute(rows, device, second):
    return any(d == device and start <= second < end for d, start, end in rows)


@pytest.mark.parametrize("seconds", [600, 700, 60])
def test_client_is_available_if_its_device_is_at_the_start_of_the_round(seconds):
    bound = TimedTrace(ROWS, drawn=True, seconds_per_round=seconds).bind(3, seed=1)
    assert sorted(bound.devices) == [0, 1, 2]
    for round in range(30):
        expected = [brute(ROWS, device, round * seconds % 2400) for device in bound.devices]
        np.testing.assert_array_equal(bound.available(np.arange(3), round), expected)


@pytest.mark.parametrize("seconds", [600, 700, 1])
def test_rates_are_fractions_of_rounds(seconds):
    bound = TimedTrace(ROWS, drawn=True, seconds_per_round=seconds).bind(3)
    once = np.lcm(seconds, 2400) // seconds  # until rounds fall on the same seconds again
    here = np.stack([bound.available(np.arange(3), t) for t in range(once)])
    np.testing.assert_allclose(bound.rates, here.mean(axis=0))


def test_recording_repeats_after_its_last_whole_day():
    rows = ((0, 0, 600), (0, 2 * DAY, 2 * DAY + 40_000))
    bound = TimedTrace(rows, drawn=True, seconds_per_round=600).bind(1)
    assert bound.period == 2 * DAY
    day = DAY // 600
    assert bound.available(np.zeros(1, dtype=np.int64), 2 * day)[0]  # second 0, not second 2 DAY
    assert not bound.available(np.zeros(1, dtype=np.int64), 2 * day + 1)[0]


def test_additional_clients_replay_devices_shifted_by_whole_days():
    rows = ((0, 0, 600), (1, 5 * DAY - 600, 5 * DAY))
    bound = TimedTrace(rows, drawn=True, seconds_per_round=600).bind(400, seed=0)
    assert (np.bincount(bound.devices) == 200).all()
    assert set(bound.later[2:]) == {0, DAY, 2 * DAY, 3 * DAY, 4 * DAY}
    assert not bound.later[:2].any()
    few = TimedTrace(rows, drawn=True, seconds_per_round=600).bind(7, seed=0)
    np.testing.assert_array_equal(few.devices, bound.devices[:7])
    np.testing.assert_array_equal(few.later, bound.later[:7])


def test_clients_with_rare_labels_have_rarely_available_devices():
    rows = (*((device, 0, 600 * (device + 1)) for device in range(10)), (9, 6000, 6001))
    counts = np.eye(2, dtype=int)[np.arange(10) % 2]
    bound = TimedTrace(rows, drawn=True, correlated_with_labels=0.1).bind(10, counts, seed=3)
    low, high = sorted((bound.rates[::2], bound.rates[1::2]), key=np.mean)
    assert low.max() < high.min()
    with pytest.raises(ConfigurationError, match="needs the class counts"):
        TimedTrace(rows, drawn=True, correlated_with_labels=0.1).bind(10)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_file_and_rows_give_the_same_trace(tmp_path, suffix):
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table(dict(zip(("client", "from", "to"), map(list, zip(*ROWS, strict=True)), strict=True)))
    path = tmp_path / f"trace.{suffix}"
    csv.write_csv(table, path) if suffix == "csv" else parquet.write_table(table, path)
    one, other = TimedTrace(path, drawn=True).bind(3), TimedTrace(ROWS, drawn=True).bind(3)
    np.testing.assert_array_equal(one.edges, other.edges)
    np.testing.assert_array_equal(one.rates, other.rates)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TimedTrace(WRONG), ConfigurationError, "needed a path or rows"),
        (lambda: TimedTrace(()), DataError, "it has no rows"),
        (lambda: TimedTrace("trace.txt"), ConfigurationError, "ends in .csv or .parquet"),
        (lambda: TimedTrace(SHORT), DataError, "row 1: .* needed"),
        (lambda: TimedTrace(((0, 5, 5),)), DataError, "row 1: from 5 to 5"),
        (lambda: TimedTrace(((0, 5, 2**41),)), DataError, "it ends in second 2199023255552; needed seconds, less than"),
        (lambda: TimedTrace(((4, 5, 6),), num_devices=4, drawn=True), DataError, "names device 4, and there are 4"),
        (lambda: TimedTrace(ROWS, drawn=True, seconds_per_round=0), ConfigurationError, "A round lasts whole seconds"),
        (
            lambda: Flash(available=cast("Any", "plugged")),
            ConfigurationError,
            "unknown value of available 'plugged'",
        ),
        (lambda: TimedTrace("none.csv").bind(3), DataError, "no such file"),
    ],
)
def test_invalid_recordings_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_more_seconds_of_clients_than_64_bits_can_number_are_refused():
    with pytest.raises(
        DataError, match=r"33,554,432 clients over 549,755,856,000 seconds are more than 64 bits can number"
    ):
        TimedTrace(((0, 5, 2**39),)).bind(2**25)


def test_missing_phone_traces_name_the_generator(tmp_path):
    with pytest.raises(DataError, match="availability=diurnal"):
        Flash(directory=str(tmp_path)).bind(3)


HERE = Path(os.environ.get("TURNOUT_DATA", "/nowhere")) / "Availability"


@pytest.mark.skipif(not HERE.is_dir(), reason="TURNOUT_DATA has no folder Availability")
def test_phone_traces_match_their_description():
    figures = presence_figures(presence(Flash().bind(300), 893), 144)
    assert figures["mean"] == pytest.approx(0.158, abs=0.004)
    assert figures["never"] == pytest.approx(3 / 300)
    assert figures["staying"] == pytest.approx(0.93, abs=0.005)
    fuller = Flash(available="battery_50").bind(300).rates
    assert (fuller >= Flash().bind(300).rates - 1e-12).all()
