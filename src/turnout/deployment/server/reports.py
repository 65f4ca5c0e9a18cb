"""The reports that a server still has to use: files, read when a step needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from turnout.core.types import Report
from turnout.deployment.server.blame import Unusable, is_of_the_machine
from turnout.deployment.server.files import ReportLost
from turnout.deployment.server.setting import RunSetting
from turnout.deployment.server.store import Store
from turnout.deployment.wire.format import LARGE
from turnout.protocol.batch import Batch
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.streaming import ReportBuffer, StreamingSum


class Reports:
    """Reports by the number of their task.

    Args:
        setting: what is run.
        store: where the files are.

    Attributes:
        bodies: the name of each report's file, by task.
    """

    def __init__(self, setting: RunSetting, store: Store) -> None:
        self._setting, self._store = setting, store
        self._lost = store.lost()
        self.bodies: dict[int, str] = {}

    def forget(self, tasks: Sequence[int]) -> None:
        """Forget the reports on tasks that have ended."""
        self._store.files.release([self.bodies.pop(task) for task in tasks if task in self.bodies])

    def leave_out(self, tasks: Sequence[int], reason: str) -> None:
        """Use the reports on some tasks no more, also where the journal is applied again: a piece may be mended by then."""
        self._lost.update(tasks)
        self._store.note_unused(tasks, reason)

    def body(self, task: int, name: str) -> bytes:
        """Read the report on a task; see `content`."""
        body = self.content(task, name, lambda _: None)
        assert isinstance(body, bytes)
        return body

    def content(self, task: int, name: str, maps: Callable[[str], Path | None]) -> bytes | Path:
        """Return the report on a task.

        Args:
            task: its number.
            name: of the file.
            maps: returns the file of a report that need not be read.

        Raises:
            ReportLost: where it is missing or damaged, or was when the journal was applied before.
            CheckpointError: where no report is left.
        """
        if task in self._lost:
            raise ReportLost(f"the report on task {task} was lost, or of no use, before")
        try:
            return maps(name) or self._store.files.read_report(name)
        except ReportLost as error:
            self._store.note_lost(task, str(error))
            self._lost.add(task)
            raise

    def read(self, batch: Batch, coordinator: Coordinator) -> Report:
        """Read the reports of a batch; where only their sum is needed, never all of them are in memory.

        Raises:
            Unusable: for one that is missing, damaged, or raises when it is read. Pieces may raise when it is weighed.
        """
        if not len(batch):
            return coordinator.no_reports()
        expected, reports = self._setting.reports[batch.phase], ReportBuffer()
        if batch.is_streamable:
            # The vectors of large reports are files that are mapped into memory, unless they are decoded. A step sums a few
            # columns of all of them at a time, so the sum, which is wider than the model, is never in memory as a whole.
            mapped = expected.coding is None and expected.size_limit >= LARGE
            reports = StreamingSum(coordinator.algorithm, coordinator.state, coordinator.federation, deferred=mapped)
        repeats = np.zeros(len(batch)) if batch.repeat_index is None else batch.repeat_index
        for task, client, version, repeat in zip(batch.tasks, batch.clients, batch.versions, repeats, strict=True):
            with _blaming(int(task)):
                body = self.content(int(task), self.bodies[int(task)], self._store.files.report_file)
                report = expected.read(body, int(client), int(version), int(repeat), checked=True)
            reports.add(report)
        return reports.reports()


@contextmanager
def _blaming(task: int) -> Iterator[None]:
    """Blame an error on the report on a task, unless the machine is to blame."""
    try:
        yield
    except Exception as error:
        if is_of_the_machine(error):
            raise
        raise Unusable([task], repr(error)) from error
