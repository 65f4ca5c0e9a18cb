"""The reports that server steps are still to use: files, read when a step needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from turnout.core.checks import CheckpointError
from turnout.core.types import Report
from turnout.protocol.batch import Batch
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.streaming import ReportBuffer, StreamingSum
from turnout_serve.server.run.blame import Unusable, is_of_the_machine
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.store.files import ReportLost
from turnout_serve.server.store.store import Store
from turnout_serve.wire.format import LARGE, size_limit


class Reports:
    """Reports by the number of their task.

    Args:
        setting: setting of the run.
        store: store of the files.

    Attributes:
        bodies: digest of each report, by task.
    """

    def __init__(self, setting: RunSetting, store: Store) -> None:
        self._setting, self._store = setting, store
        self._excluded = store.facts.lost()
        self.bodies: dict[int, str] = {}

    def forget(self, tasks: Sequence[int]) -> None:
        """Forget the reports on tasks that have ended."""
        self._store.files.release([self.bodies.pop(task) for task in tasks if task in self.bodies])

    def exclude(self, tasks: Sequence[int], reason: str) -> None:
        """Exclude the reports on tasks from all steps, also when the journal is applied again.

        The database has them because a piece that raised for these reports may be fixed by then: the same steps have to be
        taken without them all the same.
        """
        self._excluded.update(tasks)
        for task in tasks if not self._store.files.read_only else ():
            self._store.until_done(partial(self._store.facts.add_lost, task, reason))

    def body(self, task: int, digest: str) -> bytes:
        """Return the report on a task as bytes; see `content`."""
        body = self.content(task, digest, lambda _: None)
        assert isinstance(body, bytes)
        return body

    def content(self, task: int, digest: str, file: Callable[[str], Path | None]) -> bytes | Path:
        """Return the report on a task.

        Args:
            task: its number.
            digest: digest of the report.
            file: function that returns the file of a report that is mapped into memory; None for one that is read.

        Raises:
            ReportLost: if it is missing, damaged or excluded.
            CheckpointError: if it is missing, and so are all others, or nothing may be written: only a copy helps then.
        """
        if task in self._excluded:
            raise ReportLost(f"the report on task {task} was lost or unusable before")
        try:
            return file(digest) or self._store.files.read_report(digest)
        except ReportLost as error:
            if self._store.files.read_only or not self._store.files.has_reports():
                raise CheckpointError(str(error)) from error
            self.exclude([task], str(error))
            raise

    def read(self, batch: Batch, server: FederatedServer) -> Report:
        """Return the reports of a batch; where a step needs only sums of them, they are never all in memory.

        Raises:
            Unusable: if one is missing, damaged, or raises when it is read. Pieces may raise when it is weighed.
        """
        if not len(batch):
            return Report.empty(server.state.params)
        expected = self._setting.reports[batch.phase]
        reports = ReportBuffer()
        if batch.is_streamable:
            # The vectors of large reports are files that are mapped into memory, unless they are decoded. A step sums a few
            # columns of all of them at a time. So neither the reports nor the sum, which has a wider type than the model, is
            # ever in memory as a whole, and the sum is the same whatever the number of columns.
            mapped = expected.coding is None and size_limit(expected.manifest) >= LARGE
            reports = StreamingSum(server.algorithm, server.state, server.federation, deferred=mapped)
        repeats = np.zeros(len(batch)) if batch.repeat_index is None else batch.repeat_index
        for task, client, version, repeat in zip(batch.tasks, batch.clients, batch.versions, repeats, strict=True):
            try:
                body = self.content(int(task), self.bodies[int(task)], self._store.files.report_file)
                report = expected.read(body, int(client), int(version), int(repeat), checked=True)
            except Exception as error:
                if is_of_the_machine(error):
                    raise
                raise Unusable([int(task)], repr(error)) from error
            reports.add(report)
        return reports.reports()
