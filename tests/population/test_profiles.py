"""Profiles of clients from tables."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from turnout.population import Group, Speed, device_profiles
from turnout.population.delay import Constant

CSV = """profile,share,seconds_per_step,upload_bandwidth,download_bandwidth,latency,clients
phone,3,0.5,1e6,4e6,0.1,
board,1,2,,,,
server,,0.01,,,,7;2
"""
EXPECTED = (
    Group(3.0, Constant(0.5), Constant(0.1), Constant(0.1), 1e6, 4e6, name="phone"),
    Group(1.0, Constant(2.0), Constant(0.0), Constant(0.0), name="board"),
    Group(1.0, Constant(0.01), Constant(0.0), Constant(0.0), clients=(7, 2), name="server"),
)


def test_profiles_from_a_file(tmp_path: Path):
    file = tmp_path / "devices.csv"
    file.write_text(CSV)
    assert device_profiles(file) == EXPECTED
    table = pa.table({"profile": ["board"], "seconds_per_step": [2], "share": [1.0]})
    parquet.write_table(table, tmp_path / "devices.parquet")
    assert device_profiles(str(tmp_path / "devices.parquet")) == EXPECTED[1:2]


def test_profiles_from_a_mapping():
    table = {
        "phone": {
            "share": 3,
            "seconds_per_step": 0.5,
            "upload_bandwidth": 1e6,
            "download_bandwidth": 4e6,
            "latency": 0.1,
        },
        "board": {"seconds_per_step": 2},
        "server": {"seconds_per_step": 0.01, "clients": (7, 2)},
    }
    assert device_profiles(table) == EXPECTED
    assert Speed(groups=device_profiles(table)).bind(8).group.tolist() == [0, 0, 2, 0, 0, 1, 1, 2]


def test_single_client_needs_no_semicolon(tmp_path: Path):
    file = tmp_path / "devices.csv"
    file.write_text("profile,seconds_per_step,clients\na,1,3\nb,2,0\n")
    assert [group.clients for group in device_profiles(file)] == [(3,), (0,)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,0,1\n", r"profile 'a': got 0 as 'seconds_per_step', needed a number > 0"),
        ("a,-1,1\n", r"profile 'a', row 1: got -1 as 'seconds_per_step', needed a finite number >= 0"),
        ("a,fast,1\n", r"profile 'a', row 1: got 'fast' as 'seconds_per_step'"),
        ("a,,1\n", r"profile 'a': it has no 'seconds_per_step'"),
        ("a,1,0\n", r"profile 'a': got 0 as 'share', needed a number > 0"),
        ("", r"it has no rows"),
    ],
)
def test_damaged_cells_are_refused(rows, message, tmp_path: Path):
    file = tmp_path / "devices.csv"
    file.write_text("profile,seconds_per_step,share\n" + rows)
    with pytest.raises(ValueError, match=message):
        device_profiles(file)


def test_damaged_client_numbers_are_refused():
    for text in ("x;y", "-3"):  # names, which these data do not have
        groups = device_profiles({"a": {"seconds_per_step": 1, "clients": text}})
        with pytest.raises(ValueError, match=rf"groups: it names the clients '{text[:2].strip(';')}'"):
            Speed(groups=groups).bind(4)
    with pytest.raises(ValueError, match=r"profile 'a', row 1: got 3.7 as 'client', needed a whole number >= 0"):
        device_profiles({"a": {"seconds_per_step": 1, "clients": 3.7}})
    with pytest.raises(ValueError, match=r"row 1: got 'x' as 'client', needed a whole number >= 0.*in all"):
        device_profiles({"a": {"seconds_per_step": 1, "clients": ["x", 3]}})
    assert device_profiles({"a": {"seconds_per_step": 1, "clients": 3.0}})[0].clients == (3,)


def test_mismatched_columns_are_refused(tmp_path: Path):
    file = tmp_path / "devices.csv"
    file.write_text("profile,speed\na,1\n")
    with pytest.raises(
        ValueError, match=r"got columns \['profile', 'speed'\], needed \['profile', 'seconds_per_step'\]"
    ):
        device_profiles(file)
    with pytest.raises(ValueError, match=r"unknown 'bandwith': did you mean"):
        device_profiles({"a": {"seconds_per_step": 1, "bandwith": 3}})


def test_unreadable_files_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"devices\.csv: no such file"):
        device_profiles(tmp_path / "devices.csv")
    with pytest.raises(ValueError, match=r"needed a file that ends in \.csv or \.parquet"):
        device_profiles("devices.json")
    (tmp_path / "bad.parquet").write_bytes(b"not a table")
    with pytest.raises(ValueError, match=r"bad\.parquet: cannot be read"):
        device_profiles(tmp_path / "bad.parquet")
