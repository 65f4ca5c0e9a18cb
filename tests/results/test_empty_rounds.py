"""Rounds in which nobody took part are counted in the summary, on screen and in the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import turnout as to
from turnout.cli.run import conclude
from turnout.record.query import History
from turnout.reporting.report import write_report
from turnout.results.records import RunRecord
from turnout.results.table import empty_rounds

from ..tiny import classification


def record(participants: Sequence[int], algorithm: str = "fedau", seed: int = 0) -> RunRecord:
    history = History()
    for round, number in enumerate(participants, 1):
        history.record(round=round, participants=list(range(number)), test_accuracy=0.5)
    return RunRecord(algorithm, seed, history)


@pytest.mark.parametrize(
    ("participants", "expected"),
    [
        ([0, 0, 2, 0, 1], {"empty_rounds": 3, "first_participation": 3}),
        ([1, 0], {"empty_rounds": 1, "first_participation": 1}),
        ([0, 0], {"empty_rounds": 2}),
        ([1, 1], {}),
    ],
)
def test_summary_counts_empty_rounds(participants: Sequence[int], expected: dict[str, Any]) -> None:
    summary = record(participants).history.summary()
    assert {key: summary[key] for key in ("empty_rounds", "first_participation") if key in summary} == expected


def test_note_is_of_all_runs_of_an_algorithm() -> None:
    runs = [record([0, 0, 2]), record([0, 1, 0], seed=1), record([1, 1, 1], "mifa"), record([0, 0, 0], "fedavg")]
    assert empty_rounds(runs) == [
        "fedau: nobody took part in 4 of the 6 rounds of 2 runs; the first participant came in round 3 at the latest",
        "fedavg: nobody took part in 3 of the 3 rounds of 1 run; a run had no participant at all",
    ]


def test_end_of_a_run_and_its_report_say_when_the_first_participant_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = classification()
    rows = [(client, start, start + 1) for client in range(data.num_clients) for start in (3, 7)]
    population = to.Population(availability=to.availability.Trace(rows))
    result = to.Experiment(data, to.models.Logistic(), to.fedau(), population, rounds=10).run(tmp_path)
    assert "10 rounds (8 without participants)" in repr(result)
    assert result.summary()["empty_rounds"] == 8
    assert result.summary()["first_participation"] == 4
    note = "fedau: nobody took part in 8 of the 10 rounds of 1 run; the first participant came in round 4"
    conclude(tmp_path)
    assert note in " ".join(capsys.readouterr().err.split())
    page = write_report([RunRecord("fedau", 0, result.history)], tmp_path / "report.html")
    assert f"{note}." in page.read_text()
