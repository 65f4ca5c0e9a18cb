"""Export the visits of clients and the durations of tasks of a replayed run as tables for simulations."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, positive
from turnout.protocol.survey import FIRST_TASK, ClosedSurvey
from turnout.record.storage import replace_files
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Effects, Entry, Outcome
from turnout_serve.server.journal.receipts import Receipt
from turnout_serve.server.run.roster import REASONS
from turnout_serve.server.run.served_run import OVER

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


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Attributes:
        driver: driver after the last entry.
        visits: visits of clients.
        entries: number of entries.
        seconds: seconds of the server, from the first entry to the last.
        same: whether the last checkpoint has the same model, bit for bit; None without a checkpoint.
        surveys: results of evaluations and queries, in the order in which they ended.
        receipts: of the reports of the client that was asked for, in the order of the journal.
        begins: first step: 0, or that of the oldest checkpoint that the server has kept.
        head: link of the last entry; None where an earlier version wrote it.
        chained: number of the first entry with a link; None without one.
        first: number of the first entry that was replayed.
    """

    driver: Driver
    visits: Visits
    entries: int
    seconds: float
    same: bool | None
    surveys: list[ClosedSurvey]
    receipts: list[Receipt]
    begins: int
    head: str | None
    chained: int | None
    first: int


def write_trace(
    replayed: Replayed, folder: Path, seconds_per_round: float | None = None, num_clients: int = 0
) -> tuple[list[Path], dict[str, Any]]:
    """Write the visits of clients and the durations of tasks as tables for `Trace` and `RecordedSpeed`.

    A client without a report that was taken gets the median of all durations, because a simulation needs one; so do clients
    of the data who never came.

    Args:
        replayed: a run.
        folder: folder of the tables.
        seconds_per_round: length of a round of availability where the pace has no rounds; None is a hundredth of the run.
            With rounds, those of the server are those of the trace, and a client is present in those whose task it did not
            lose.
        num_clients: number of clients of the data that are to be simulated, if more than came.

    Returns:
        The paths of the tables, and the settings of a simulation of these clients.

    Raises:
        CheckpointError: if they cannot be written; earlier tables are unchanged then.
        ConfigurationError: if no client was ever there.
    """
    rounds = replayed.driver.setting.pace.steps_are_rounds
    if seconds_per_round is not None:
        positive("seconds_per_round", seconds_per_round)
    length = seconds_per_round or max(replayed.seconds / 100, 1e-3)
    trace, speed = folder / "trace.csv", folder / "speed.csv"
    stays = list(_stays(replayed.visits, None if rounds else length))
    if not stays:
        raise ConfigurationError(
            "no client was there for a round, so there is no trace to write: replay without --as-trace"
        )
    number = max(replayed.driver.roster.num_clients, num_clients)
    replace_files(
        {
            trace: partial(_write, names=("client", "from", "to"), rows=stays),
            speed: partial(_write, names=("client", "compute"), rows=_durations(replayed, number)),
        }
    )
    population: dict[str, Any] = {"speed": {"kind": "recorded", "table": str(speed)}}
    if not rounds:
        population["seconds_per_round"] = length
    # On a clock, a simulation may need more time than the run took, and would wait in vain for clients after its end.
    availability = {"name": "trace", "table": str(trace), "repeat": not rounds}
    return [trace, speed], {"availability": availability, "population": population}


def _durations(replayed: Replayed, num_clients: int) -> list[tuple[int, float]]:
    """Return the client and the seconds of each task, and the median for clients without any."""
    tasks = [(client, max(seconds, 1e-3)) for client, seconds in replayed.visits.tasks]
    median = float(np.median([seconds for _, seconds in tasks])) if tasks else 1.0
    timed = {client for client, _ in tasks}
    return tasks + [(client, median) for client in range(num_clients) if client not in timed]


def _write(path: Path, names: tuple[str, ...], rows: Iterable[tuple[float, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
