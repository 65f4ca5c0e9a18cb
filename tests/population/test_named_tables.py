"""Tables of speeds, requirements and ranks go by the names of the data's clients, as traces do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.population.requirement import GivenRequirement
from turnout.population.speed import Group, RecordedSpeed, Speed, device_profiles
from turnout.population.speed.durations import SpeedModel

from ..logs import logged

NAMES = ("bob", "eve", "zoe")
DIGITS = tuple(sorted(map(str, range(12))))
"""Texts in sorted order: 0, 1, 10, 11, 2, ...: client number 2 is named 10."""


def seconds(speed: SpeedModel, names: tuple[str, ...] | None) -> list[float]:
    """Return the computing time of the first task of each client, as a run has it."""
    n = len(names or NAMES)
    population = to.Population(speed=speed).of_clients(names)
    assert population.speed is not None
    return population.speed.bind(n).seconds(np.arange(n), np.zeros(n, dtype=int)).compute.tolist()


def csv(folder: Path, text: str) -> str:
    (folder / "table.csv").write_text(text, encoding="utf-8")
    return str(folder / "table.csv")


def test_recorded_durations_go_by_name(tmp_path):
    rows = (("zoe", 9.0), ("bob", 1.0), ("eve", 5.0), ("bob", 2.0))
    assert seconds(RecordedSpeed(rows), NAMES) == [1.0, 5.0, 9.0]
    path = csv(tmp_path, "client,compute\n" + "".join(f"{client},{value}\n" for client, value in rows))
    assert seconds(RecordedSpeed(path), NAMES) == [1.0, 5.0, 9.0]
    assert seconds(RecordedSpeed(((0, 1.0), (2, 9.0), (1, 5.0))), NAMES) == [1.0, 5.0, 9.0]
    assert set(seconds(RecordedSpeed(rows, drawn=True), None)) <= {1.0, 2.0, 5.0, 9.0}


@pytest.mark.parametrize("names", [DIGITS, ("3", "5", "17")])
def test_numbers_that_are_names_are_read_as_names(names: tuple[str, ...], tmp_path: Path):
    rows = tuple((int(name), 1.0 + int(name)) for name in reversed(names))
    expected = [1.0 + int(name) for name in names]
    assert seconds(RecordedSpeed(rows), names) == expected
    groups = tuple(Group(clients=(client,), compute=to.delay.Constant(value)) for client, value in rows)
    assert seconds(Speed(per="task", groups=groups), names) == expected
    path = csv(
        tmp_path, "client,requirement,rank\n" + "".join(f"{client},{value},{value:g}\n" for client, value in rows)
    )
    assert to.guard.ranks_from_table(path, names=names) == tuple(expected)
    path = csv(tmp_path, "client,requirement\n" + "".join(f"{client},{value}\n" for client, value in rows))
    bound = GivenRequirement(path).of_clients(names).bind(len(names), None)
    assert bound is not None
    assert bound.train.tolist() == expected
    trace = to.availability.Trace(tuple((int(name), i, i + 1) for i, name in enumerate(names)))
    present = trace.of_clients(names).bind(len(names))
    for i in range(len(names)):
        assert np.flatnonzero(present.available(np.arange(len(names)), i)).tolist() == [i]


def test_groups_and_profiles_go_by_name(tmp_path):
    slow, fast = to.delay.Constant(10), to.delay.Constant(1)
    groups = (Group(clients=("zoe", "bob"), compute=slow), Group(compute=fast))
    assert seconds(Speed(per="task", groups=groups), NAMES) == [10.0, 1.0, 10.0]
    path = csv(tmp_path, "profile,seconds_per_step,clients\nslow,10,zoe;bob\nfast,1,eve\n")
    assert [group.clients for group in device_profiles(path)] == [("zoe", "bob"), ("eve",)]
    assert seconds(Speed(groups=path), NAMES) == [10.0, 1.0, 10.0]


def test_requirements_go_by_name_in_a_run(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")
    data = to.data.from_arrays(x, np.arange(30) % 2, client_ids=np.repeat(NAMES, 10)).split(test_fraction=0.0)
    path = csv(tmp_path, "client,requirement\nzoe,0.9\nbob,0.1\neve,0.5\n")
    population = to.Population(requirement=GivenRequirement(path, measure="accuracy"))
    run = to.Experiment(data, to.models.Logistic(), to.maxfl(), population=population, rounds=1).run()
    assert run.clients["requirement"].to_pylist() == [0.1, 0.5, 0.9]


def test_ranks_go_by_name(tmp_path):
    path = csv(tmp_path, "client,rank\nzoe,8\nbob,2\neve,4\nann,1\n")
    assert to.guard.ranks_from_table(path, names=NAMES) == (2, 4, 8)
    with pytest.raises(
        DataError, match=r"it names its clients: write ranks_from_table\(path, names=data.client_names\)"
    ):
        to.guard.ranks_from_table(path)
    with pytest.raises(DataError, match="needed one row for each client"):
        to.guard.ranks_from_table(path, names=(*NAMES, "sue"))


def test_names_of_no_client_are_refused(tmp_path):
    rows = (("ann", 9.0), ("bob", 1.0))
    with pytest.raises(
        DataError, match=r"recorded speed: it names the clients 'ann', 'bob', and those of the data are 'x'"
    ):
        RecordedSpeed(rows).of_clients(("x",))
    with pytest.raises(
        DataError, match=r"recorded speed: it names the clients 'ann', 'bob', and those of .* numbers only"
    ):
        RecordedSpeed(rows).of_clients(None)
    with pytest.raises(
        DataError, match=r"recorded speed: it names the clients 'ann', 'bob', which data with these names"
    ):
        RecordedSpeed(rows).bind(2)
    with logged("recorded speed: 1 of its names are not clients that train, such as 'ann'"):
        assert seconds(RecordedSpeed(rows), ("bob",)) == [1.0]
    with pytest.raises(DataError, match=r"client 1 of 2 has no row"):
        seconds(RecordedSpeed(rows), ("ann", "zoe"))
    groups: Any = (Group(clients=("bob", "ann")), Group())
    with pytest.raises(ConfigurationError, match=r"clients of groups: got 'ann', needed names of clients that train"):
        Speed(groups=groups).of_clients(NAMES)
    with pytest.raises(DataError, match=r"groups: it names the clients 'ann', 'bob', which data with these names"):
        Speed(groups=groups).bind(3)
    with pytest.raises(DataError, match=r"groups, row 2: got 'ann' as 'client'.* write names or numbers in all"):
        Speed(groups=(Group(clients=(0,)), Group(clients=("ann",)))).of_clients(NAMES)
    path = csv(tmp_path, "client,requirement\nbob,1\neve,2\n")
    with pytest.raises(DataError, match=r"client 2 has 0 rows; needed one for each of the clients 0 to 2"):
        GivenRequirement(path).of_clients(NAMES)
    with pytest.raises(
        DataError, match=r"requirements .*: it names the clients 'bob', 'eve', which data with these names"
    ):
        GivenRequirement(path).bind(2, None)
