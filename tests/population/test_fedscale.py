"""FedScale's traces."""

import datetime
import hashlib
import pickle

import numpy as np
import pytest

from turnout import ConfigurationError, DataError
from turnout.population import fedscale_availability, fedscale_speed

PRESENT = {
    "a": {"duration": 10, "inactive": [600, 2400], "finish_time": 3600, "active": [0, 1800], "model": "phone"},
    "b": {"duration": 10, "inactive": [1200, 5], "finish_time": 3600, "active": [600, 5], "model": "phone"},
}


@pytest.fixture
def written(tmp_path):
    def write(value, name="trace.pickle"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(value))
        return path

    return write


def test_clients_are_available_between_active_and_inactive(written):
    bound = fedscale_availability(written(PRESENT)).bind(2, seed=0)
    here = np.stack([bound.available(np.arange(2), t) for t in range(4)], axis=1)
    assert sorted(here.tolist()) == [[False, True, False, False], [True, False, False, True]]


def test_speed_is_three_inferences_per_step_plus_message_over_bandwidth(written):
    path = written({1: {"computation": 100.0, "communication": 4000.0}})
    speed = fedscale_speed(path, batch_size=10, message_kbytes=500).bind(5)
    took = speed.seconds(np.arange(5), np.zeros(5, dtype=np.int64), 2)
    np.testing.assert_allclose(took.compute, 2 * 3 * 10 * 0.1)
    np.testing.assert_allclose(took.download, 1.0)
    np.testing.assert_allclose(took.upload, 1.0)


def test_checksum_of_the_file_is_verified(written):
    path = written(PRESENT)
    fedscale_availability(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(DataError, match=r"expected 0000.*: download it again"):
        fedscale_availability(path, sha256="0" * 64)
    with pytest.raises(ConfigurationError, match="needed 64 hexadecimal digits"):
        fedscale_availability(path, sha256="abc")


class Runs:
    def __reduce__(self):
        return print, ("never",)


@pytest.mark.parametrize("value", [datetime.date(2020, 1, 1), {"a": Runs()}, np.float64(1)])
def test_pickled_classes_and_functions_are_refused(written, value, capsys):
    with pytest.raises(DataError, match="only dictionaries, lists, numbers and texts are read"):
        fedscale_availability(written(value))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "needed a dictionary with an entry for every client"),
        ({}, "needed a dictionary with an entry for every client"),
        ({1: {"active": [1]}}, "client 0: .* needed 'active' and 'inactive'"),
        ({1: {"active": [1, 2], "inactive": [3]}}, "equally many seconds each"),
        ({1: {"active": [1], "inactive": [1]}}, "no client is ever available"),
    ],
)
def test_other_forms_of_availability_are_refused(written, value, message):
    with pytest.raises(DataError, match=message):
        fedscale_availability(written(value))


@pytest.mark.parametrize("entry", [{"computation": "x", "communication": 1}, {"computation": 1}, 3])
def test_other_forms_of_capacity_are_refused(written, entry):
    with pytest.raises(DataError, match="needed numbers 'computation' and 'communication'"):
        fedscale_speed(written({1: entry}))


def test_non_positive_capacities_are_refused(written):
    with pytest.raises(DataError, match="needed numbers > 0"):
        fedscale_speed(written({1: {"computation": 0, "communication": 5}}))


def test_missing_and_damaged_files_are_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        fedscale_speed(tmp_path / "none")
    (tmp_path / "broken").write_bytes(b"\x80\x04garbage")
    with pytest.raises(DataError, match="not a pickle that can be read"):
        fedscale_speed(tmp_path / "broken")
