"""Replay a deployment from its journal: recompute its model, and export the visits of clients for simulations."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.core.checks import CheckpointError, positive
from turnout.protocol.pace import BoundRounds
from turnout.protocol.survey import FIRST_TASK, ClosedSurvey
from turnout.record import checkpoint
from turnout.record.contents import restoring
from turnout.record.storage import replace_files
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Effects, Entry, Outcome
from turnout_serve.server.journal.retention import replay_start
from turnout_serve.server.journal.saved_state import restore
from turnout_serve.server.run.roster import REASONS
from turnout_serve.server.run.served_run import OVER
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.store.store import SQLITE, Store

_OF_THE_PACE = ("taken", "late", OVER)  # outcomes that the pace of a simulation causes itself


@dataclass
class Visits:
    """Visits of clients and durations of tasks in a journal.

    Attributes:
        stays: client, start and end of each visit in seconds, and the first and the last version, exclusive, in which
            the client could take part.
        tasks: (client, seconds) of every report that was taken, in the order of the journal.
        assigned: time at which each client was given its open task.
        lost: (client, version) of every task that ended without a report for a reason other than the pace, such as a client
            that left; the client does not take part in that round.
    """

    stays: list[tuple[int, float, float, int, int]] = field(default_factory=list)
    tasks: list[tuple[int, float]] = field(default_factory=list)
    assigned: dict[int, float] = field(default_factory=dict)
    lost: set[tuple[int, int]] = field(default_factory=set)
    _present: dict[int, tuple[float, int]] = field(default_factory=dict)

    def note(self, driver: Driver, entry: Entry, effects: Effects, version: int, running: bool) -> None:
        """Add an entry that was applied.

        Args:
            driver: driver after the entry.
            entry: entry of the journal.
            effects: effects of the entry.
            version: version before the entry.
            running: True where the cohort of that version was selected before the entry.
        """
        outcomes = [outcome for outcome in effects.outcomes if outcome.task < FIRST_TASK]
        self.lost |= {(outcome.client, version) for outcome in outcomes if outcome.outcome not in _OF_THE_PACE}
        match entry.kind:
            case "join" if entry.sender not in driver.roster.bans:
                self._present[entry.sender] = entry.time, version + running
            case kind if kind == "leave" or (kind in REASONS and entry.sender in self._present):
                # The version before the entry: if the client was the last one at work, its leave has ended that step.
                self._leave(entry.sender, entry.time, version if running else version - 1)
            case "report" if entry.done < FIRST_TASK:
                self._note_report(entry, outcomes)
        self.assigned |= dict.fromkeys(effects.assigned, entry.time)

    def _note_report(self, entry: Entry, outcomes: list[Outcome]) -> None:
        """Add the duration of a task, if its report was taken."""
        since = self.assigned.pop(entry.sender, None)
        taken = any(outcome.task == entry.task and outcome.outcome == "taken" for outcome in outcomes)
        if taken and since is not None:
            self.tasks.append((entry.sender, entry.time - since))

    def end(self, driver: Driver, time: float) -> None:
        """End the visits of the clients that are present at the end of the run."""
        for client in list(self._present):
            self._leave(client, time, driver.version - 1)

    def _leave(self, client: int, time: float, version: int) -> None:
        came, first = self._present.pop(client, (time, version))
        self.stays.append((client, came, time, first, version + 1))


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Attributes:
        driver: driver after the last entry.
        visits: visits of clients.
        entries: number of entries.
        seconds: seconds of the server, from the first entry to the last.
        same: whether the last checkpoint has the same model, bit for bit; None where it is of another version.
        surveys: results of evaluations and queries, in the order in which they ended.
        begins: first step: 0, or that of the oldest checkpoint that the server has kept.
    """

    driver: Driver
    visits: Visits
    entries: int
    seconds: float
    same: bool | None
    surveys: list[ClosedSurvey]
    begins: int = 0


def replay(
    setting: RunSetting, folder: Path, database: str | None = None, store: str | None = None, whole: bool = False
) -> Replayed:
    """Recompute a run from its journal and the reports of clients.

    Args:
        setting: setting of the run.
        folder: folder of the run.
        database: URL of the journal, if not in the folder.
        store: URL of its object store, if it has one. The one that the folder names is not reached unasked.
        whole: True to refuse a run whose first entries were deleted.

    Raises:
        CheckpointError: if a folder has no journal, or if reports are missing.
    """
    if database is None and not (folder / SQLITE).exists():
        raise CheckpointError(f"{folder} holds no {SQLITE}: give the folder of a run that `turnout serve` made")
    journal = Store(folder, database, store, read_only=True)
    try:
        driver, visits, first, last = Driver(setting, journal), Visits(), None, 0.0
        driver.on_step, driver.on_survey = (
            (lambda at: _compare(at, folder, comparison)),
            (closed := list[ClosedSurvey]()).append,
        )
        comparison: dict[str, Any] = {}
        if (anchor := replay_start(folder, journal)) is not None:
            if whole:
                raise CheckpointError(
                    f"the journal of {folder} begins at step {anchor.version}, for the server was told to keep no more "
                    "(--keep-reports): a trace needs all of it"
                )
            with restoring(anchor.path / checkpoint.FILE, "the run"):
                restore(driver, *checkpoint.load(anchor.path), folder)
            _compare(driver, folder, comparison)
        begins, applied = driver.version, driver.applied
        for entry in journal.entries(applied):
            version, running = driver.version, _running(driver)
            with restoring(f"entry {entry.number} of the journal of {folder}", entry.kind):
                visits.note(driver, entry, driver.apply(entry), version, running)
            first, last = entry.time if first is None else first, entry.time
        visits.end(driver, last)
        seconds = last - (first or 0.0)
        return Replayed(driver, visits, driver.applied - applied, seconds, comparison.get("same"), closed, begins)
    finally:
        journal.close()


def _stays(visits: Visits, length: float | None) -> Iterator[tuple[int, int, int]]:
    """Yield client, first and last round, exclusive, of each visit.

    Args:
        visits: visits of clients.
        length: seconds of a round of availability; None takes the rounds of the server.
    """
    for client, came, went, first, last in visits.stays:
        if length is not None:
            start, end = math.ceil(came / length), math.ceil(went / length)
        else:
            start, end = first, last
            for version in sorted(
                version for lost, version in visits.lost if lost == client and first <= version < last
            ):
                if version > start:
                    yield client, start, version
                start = version + 1
        if end > start:
            yield client, start, end


def write_trace(
    replayed: Replayed, folder: Path, seconds_per_round: float | None = None
) -> tuple[list[Path], dict[str, Any]]:
    """Write the visits of clients and the durations of tasks as tables for `Trace` and `RecordedSpeed`.

    A client without a report that was taken gets the median of all durations, because a simulation needs one.

    Args:
        replayed: a run.
        folder: folder of the tables.
        seconds_per_round: length of a round of availability where the pace has no rounds; None is a hundredth of the run.
            With rounds, those of the server are those of the trace, and a client is present in those whose task it did not
            lose.

    Returns:
        The paths of the tables, and the settings of a simulation of these clients.

    Raises:
        CheckpointError: if they cannot be written; earlier tables are unchanged then.
    """
    rounds = replayed.driver.setting.pace.steps_are_rounds
    if seconds_per_round is not None:
        positive("seconds_per_round", seconds_per_round)
    length = seconds_per_round or max(replayed.seconds / 100, 1e-3)
    trace, speed = folder / "trace.csv", folder / "speed.csv"
    stays = list(_stays(replayed.visits, None if rounds else length))
    replace_files(
        {
            trace: partial(_write, names=("client", "from", "to"), rows=stays),
            speed: partial(_write, names=("client", "compute"), rows=_durations(replayed)),
        }
    )
    population: dict[str, Any] = {"speed": {"kind": "recorded", "table": str(speed)}}
    if not rounds:
        population["seconds_per_round"] = length
    availability = {"name": "trace", "table": str(trace), "repeat": False}
    return [trace, speed], {"availability": availability, "population": population}


def _durations(replayed: Replayed) -> list[tuple[int, float]]:
    """Return the client and the seconds of each task, and the median for clients without any."""
    tasks = [(client, max(seconds, 1e-3)) for client, seconds in replayed.visits.tasks]
    median = float(np.median([seconds for _, seconds in tasks])) if tasks else 1.0
    timed = {client for client, _ in tasks}
    return tasks + [(client, median) for client in range(replayed.driver.roster.num_clients) if client not in timed]


def _running(driver: Driver) -> bool:
    """Return whether the cohort of the present round was selected already."""
    if driver.run is None:
        return False
    pace = driver.run.coordinator.scheduler.pace
    return pace.running if isinstance(pace, BoundRounds) else False


def _compare(driver: Driver, folder: Path, comparison: dict[str, Any]) -> None:
    """Compare the model with that of the run's checkpoint, if that is of the same version."""
    if not checkpoint.exists(folder):
        return
    if "version" not in comparison:
        comparison |= {"version": checkpoint.load(folder)[1].get("version")}
    if driver.version == comparison["version"]:
        with restoring(folder / checkpoint.FILE, "model/params"):
            comparison["same"] = torch.equal(driver.params, checkpoint.load(folder)[0]["model/params"])


def _write(path: Path, names: tuple[str, ...], rows: Iterable[tuple[float, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
