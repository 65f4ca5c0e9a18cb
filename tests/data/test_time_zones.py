"""Dates of tables and traces are moments: the same in every time zone, or an error where the zone is missing."""

import numpy as np
import pytest

import turnout as to
from turnout import DataError

pd = pytest.importorskip("pandas")

HOURS = pd.date_range("2026-03-28 20:00", periods=12, freq="h", tz="UTC")
"""Hours around the night in which clocks in Berlin go from 2 to 3."""


def frame(when):
    """A table of three clients with a column of dates."""
    return pd.DataFrame({"client": np.arange(12) % 3, "y": np.arange(12) % 2, "when": when})


WAYS = {
    "utc": HOURS,
    "local": HOURS.tz_convert("Europe/Berlin"),
    "several": [
        hour.tz_convert(zone) for hour, zone in zip(HOURS, ("Asia/Tokyo", "America/New_York") * 6, strict=True)
    ],
    "naive": HOURS.tz_localize(None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{}, {"scale": True}, {"transform": to.data.mixed_columns()}])
def test_dates_of_tables_are_moments(way, options):
    expected = HOURS.asi8 / (np.timedelta64(1, "D") / np.timedelta64(1, HOURS.unit))
    if options:
        expected = (expected - expected.mean()) / expected.std()
    x = to.data.from_table(frame(WAYS[way]), label="y", client="client", **options).x
    np.testing.assert_allclose(x[:, 0], expected, atol=1e-3)


BARE = [HOURS[0].tz_localize(None), *HOURS[1:]]


def test_dates_with_and_without_a_zone_are_refused():
    match = "column 'when': the date in row 1 has no time zone, and that in row 2 has one: convert all of them to UTC"
    for table in (frame(BARE), frame(BARE).to_dict("list")):
        with pytest.raises(DataError, match=match):
            to.data.from_table(table, label="y", client="client")


def visits(zone):
    """Two clients that are available around the change of clocks."""
    starts, ends = HOURS[[0, 6]], HOURS[[6, 8]]
    return pd.DataFrame({"client": [0, 1], "from": starts.tz_convert(zone), "to": ends.tz_convert(zone)})


def seen(table):
    """Return who is available in each hour."""
    bound = to.availability.TimedTrace(table, seconds_per_round=3600).bind(2)
    return [bound.available(np.arange(2), hour).tolist() for hour in range(8)]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", None])
@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "rows"])
def test_visits_of_traces_are_moments(zone, form, tmp_path):
    table = visits(zone)
    if form in ("csv", "parquet"):
        path = tmp_path / f"trace.{form}"
        getattr(table, f"to_{form}")(path, index=False)
        table = str(path)
    elif form == "rows":
        table = tuple((row.client, row[2].isoformat(), row[3].isoformat()) for row in table.itertuples())
    assert seen(table) == [[True, False]] * 6 + [[False, True]] * 2


def test_traces_of_which_one_end_has_no_zone_are_refused():
    table = visits("Europe/Berlin").assign(to=visits(None)["to"])
    with pytest.raises(
        DataError, match="timed trace: 'from' has a time zone, and 'to' has none: write both as in 2020"
    ):
        seen(table)
    with pytest.raises(DataError, match="column 'from': the date in row 1 has no time zone"):
        seen(table.assign(**{"from": [HOURS[0].tz_localize(None), HOURS[6]]}))
