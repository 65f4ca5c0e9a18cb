"""Folders of runs that version 0.1 wrote before tables, journal and records became one log: `experiment` of three clients.

``earlier/finished`` is a run of 3 rounds with ``record_weights=True``, ``earlier/going-on`` one of 4 rounds that was stopped
in round 3 with a checkpoint of round 2.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import turnout as to
from turnout.comparison.folders import is_finished, load_record

from .test_storage import experiment

EARLIER = Path(__file__).parent / "earlier"
LOSSES = [1.7650927305221558, 1.4934903383255005, 1.282077670097351]


@pytest.fixture
def earlier(tmp_path):
    shutil.copytree(EARLIER, tmp_path / "runs")
    return tmp_path / "runs"


def test_finished_run_of_an_earlier_version_is_read(earlier):
    result = to.load(earlier / "finished")
    assert result.rounds["local_loss"].to_pylist() == LOSSES
    assert result.rounds["test_loss"].to_pylist() == [None, 1.372093786795934, 1.3542723655700684]
    assert result.rounds["bytes_up"].to_pylist() == [900] * 3
    assert result.participation.to_pydict() == {
        "round": [1] * 3 + [2] * 3 + [3] * 3,
        "client": [0, 1, 2] * 3,
        "weight": [1 / 3] * 9,
    }
    assert result.clients["num_examples"].to_pylist() == [6, 4, 8]
    assert is_finished(earlier / "finished", replace(experiment(rounds=3), record_weights=True))
    assert load_record(earlier / "finished").history.summary()["bytes_down"] == 2520


def test_unfinished_run_of_an_earlier_version_is_read_up_to_its_checkpoint(earlier):
    history = to.load(earlier / "going-on").history
    assert (history.last_round, len(history.clients)) == (2, 0)
    assert history.column("local_loss")[1].tolist() == LOSSES[:2]


@pytest.mark.parametrize(("name", "rounds"), [("finished", 5), ("going-on", 4)])
def test_run_of_an_earlier_version_continues_to_the_same_result(earlier, name, rounds):
    run = replace(experiment(rounds=rounds), record_weights=True)
    result, reference = run.run(earlier / name, resume=True), run.run()
    assert result.participation.equals(reference.participation)
    losses = (history.column("local_loss")[1] for history in (result.history, reference.history))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert {path.name for path in (earlier / name).iterdir()} > {"rounds.parquet", "clients.parquet"}
    assert not (earlier / name / "history.journal").exists()


def test_served_run_with_whole_tables_continues_from_any_round(earlier):
    """Its checkpoint may be the one before, two rounds behind the tables; there is no log yet."""
    history = to.History.load(earlier / "finished", last=2)
    assert (history.last_round, len(history.clients)) == (2, 0)
    history.record(round=3, local_loss=0.5, participants=[1])
    history.append(earlier / "finished")
    again = to.History.load(earlier / "finished", last=3)
    assert again.column("local_loss")[1].tolist() == LOSSES, "tables of the same round are those of a finished run"
    history.record(round=4, local_loss=0.25, participants=[1])
    history.append(earlier / "finished")
    again = to.History.load(earlier / "finished", last=4)
    assert again.column("local_loss")[1].tolist() == [*LOSSES[:2], 0.5, 0.25]
