"""List which reports of a client a server has used, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Effects, Entry


@dataclass(frozen=True)
class Receipt:
    """What became of a report.

    Attributes:
        entry: number of its entry in the journal.
        task: number of the task.
        phase: what the task asked for: ``"train"``, ``"evaluate"``, ``"query"`` or another phase.
        version: version of the model that it was computed from.
        digest: SHA-256 of the report, which its client knows.
        outcome: ``"taken"``, or why it was not used.
        step: the server step that the report is in; None where it is in none.
    """

    entry: int
    task: int
    phase: str
    version: int
    digest: str
    outcome: str = "late"
    step: int | None = None

    def __str__(self) -> str:
        """Return one line.

        >>> print(Receipt(7, 3, "train", 0, "ab" * 32, "taken", 1))
        entry 7, task 3 (train, from step 0), abababababab: counted in step 1
        """
        end = f"counted in step {self.step}" if self.step is not None else self.outcome
        return (
            f"entry {self.entry}, task {self.task} ({self.phase}, from step {self.version}), {self.digest[:12]}: {end}"
        )


class Receipts:
    """Collect the receipts of one client while its journal is replayed.

    Args:
        client: number of the client; None collects nothing.
    """

    def __init__(self, client: int | None) -> None:
        self._client = client
        self._by_task: dict[int, Receipt] = {}

    def arrived(self, driver: Driver, entry: Entry) -> None:
        """Note a report, before its entry is applied."""
        if entry.kind != "report" or entry.client is None or entry.client != self._client:
            return
        task = driver.tasks.get(entry.client, entry.done)
        if task is not None:  # a repeated report has no effect
            self._by_task[entry.done] = Receipt(entry.number, entry.done, task.phase, task.version, entry.body)

    def stepped(self, driver: Driver) -> None:
        """Note the reports that a step has used."""
        for task in () if driver.run is None else driver.run.used:
            if task in self._by_task:
                self._by_task[task] = replace(self._by_task[task], step=driver.version)

    def ended(self, effects: Effects) -> None:
        """Note the outcomes of tasks after an entry was applied."""
        for outcome in effects.outcomes:
            if outcome.task in self._by_task:
                self._by_task[outcome.task] = replace(self._by_task[outcome.task], outcome=outcome.outcome)

    def listed(self) -> list[Receipt]:
        """Return the receipts in the order of the journal."""
        return sorted(self._by_task.values(), key=lambda receipt: receipt.entry)
