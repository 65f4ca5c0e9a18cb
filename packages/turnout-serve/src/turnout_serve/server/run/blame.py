"""Find the reports that make a computation raise, or find that a piece raises whatever clients report.

The result follows from the reports and the state before the computation, so applying the journal again gives the same one.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from turnout.core.checks import CheckpointError, TurnoutError
from turnout.core.registry import Registered
from turnout.core.types import Report
from turnout.protocol.batch import Batch
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Gather, Phase, Step
from turnout.protocol.pace.actions import select
from turnout_serve.server.store.files import ReportLost
from turnout_serve.wire.messages import ReportFormat

_NO_MEMORY = ("not enough memory", "t allocate memory")  # of PyTorch on CPUs, where it is a plain RuntimeError


class Unusable(Exception):
    """Reports that cannot be used; the step is to be taken without them."""

    def __init__(self, tasks: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.tasks, self.reason = tasks, reason


class PieceFailed(TurnoutError, RuntimeError):
    """A piece that raises whatever clients report; the run cannot continue before it is fixed."""

    @classmethod
    def of(cls, error: Exception, version: int, entry: int) -> PieceFailed:
        """Return an error that names the piece, and what to do.

        Args:
            error: raised by the piece.
            version: version of the step that failed, or after which the selection failed.
            entry: number of the entry that was applied.
        """
        return cls(
            f"{_origin(error)} raised {error!r} at step {version}, behind entry {entry} of the journal, and there is no "
            "report without which it can be taken. Nothing of this was saved: mend the code, and start the server again"
        )


def _origin(error: Exception) -> str:
    """Return the method of a piece that raised an error, or else the function, with its line."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    of_pieces = [(frame, line) for frame, line in frames if isinstance(frame.f_locals.get("self"), Registered)]
    frame, line = (of_pieces or frames)[-1]
    name = frame.f_code.co_name
    if of_pieces:
        name = f"{type(frame.f_locals['self']).__name__}.{name}"
    return f"{name} ({frame.f_code.co_filename}:{line})"


def culprits(suspects: Sequence[int], raises: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return the reports without which a computation does not raise, by bisection.

    One bad report of B takes about ``2 log2(B)`` attempts, for halves that do not raise are not searched.

    Args:
        suspects: numbers of the reports; with all of them, the computation raises.
        raises: function that returns whether it raises with some of them.

    Returns:
        The smallest set that bisection finds; all reports where each raises alone.

    >>> culprits(range(8), lambda reports: 3 in reports or 6 in reports)
    [3, 6]
    """
    good: list[int] = []

    def search(part: Sequence[int], known_bad: bool) -> list[int]:
        if not known_bad and not raises([*good, *part]):
            good.extend(part)
            return []
        if len(part) < 2:
            return list(part)
        half = len(part) // 2
        first = search(part[:half], False)
        # The whole part raises. If its first half does not, together with the good ones, the second half has to.
        return first + search(part[half:], not first)

    return search(list(suspects), False)


class Blame:
    """Find the reports that make the pieces of a run raise, by attempts without some of them that change no state.

    Args:
        coordinator: tries steps.
        formats: formats of reports, by phase.
        reports_of: function that returns the reports of a batch.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        formats: Mapping[Phase, ReportFormat],
        reports_of: Callable[[Coordinator, Batch], Report],
    ) -> None:
        self._coordinator, self._formats, self._reports_of = coordinator, formats, reports_of
        self._server = coordinator.server
        self._extra = self._server.algorithm.extra_phases

    def of_choice(self, error: Exception) -> list[int]:
        """Return the rows of measurements for which the selection raises; none where no client is to blame."""
        if is_of_the_machine(error):
            return []
        rows = self._rows
        bad = culprits(range(rows), self._choice_raises)
        return [] if len(bad) == rows and self._choice_raises(()) else bad

    def of_action(self, error: Exception, action: Step | Gather) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the reports that make a step or a phase raise.

        A piece is to blame where it raises for each report alone, and for blank reports (`ReportFormat.blank`). With
        differential privacy no report is left out: that would change the weights of others depending on a client's data.

        Returns:
            Tasks of the action, and rows of the measurements before it; None where no client is to blame.
        """
        tasks = action.tasks
        if is_of_the_machine(error) or not tasks:
            return None
        if isinstance(error, Unusable):
            return sorted(set(error.tasks).intersection(tasks)) or tasks, ()
        if isinstance(action, Gather) and action.phase in self._extra:
            return tasks, ()
        if self._server.algorithm.nulls_dropped:
            return None
        if self._extra:  # no client can be left out of a secure sum
            return None if self._blanks_raise(action) else (tasks, ())
        return self._search(action)

    def _search(self, action: Step | Gather) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the tasks and rows of measurements without which an action does not raise; None if a piece is to blame."""
        tasks, rows = action.tasks, self._rows

        def raises(numbers: Sequence[int]) -> bool:
            """Try some reports, and some measurements, which have negative numbers."""
            used = {tasks[number] for number in numbers if number >= 0}
            part = select(action, [task in used for task in tasks])
            return self._raises(lambda: self._check(part), [number for number in numbers if number < 0])

        bad = culprits([*range(len(tasks)), *range(-rows, 0)], raises)
        of_tasks = [tasks[number] for number in bad if number >= 0]
        if not bad or (len(of_tasks) == len(tasks) and self._blanks_raise(action)):
            return None
        return of_tasks, [number + rows for number in bad if number < 0]

    @property
    def _rows(self) -> int:
        """Number of clients that have measured before the present action."""
        return 0 if self._server.measured is None else len(self._server.measured)

    def _check(self, action: Step | Gather) -> None:
        batch = self._coordinator.batch(action)
        self._coordinator.check(batch, self._reports_of(self._coordinator, batch))

    def _choice_raises(self, rows: Sequence[int]) -> bool:
        return self._raises(self._coordinator.scheduler.check_choice, rows)

    def _blanks_raise(self, action: Step | Gather) -> bool:
        """Return whether an action raises for blank reports and measurements."""
        coordinator, params = self._coordinator, self._server.state.params
        batch, measured = coordinator.batch(action), self._server.measured
        blanks = self._formats[batch.phase].blank(batch.clients, batch.versions, params)
        if measured is not None:
            measured = self._formats["measure"].blank(measured.client, measured.version, params[:0])
        return self._raises(lambda: coordinator.check(batch, blanks), measured)

    def _raises(self, attempt: Callable[[], object], measured: Sequence[int] | Report | None) -> bool:
        """Return whether an attempt raises with some rows of the measurements, or with others in their place."""
        server, before = self._server, self._server.measured
        try:
            if before is not None and measured is not None:
                rows = measured if isinstance(measured, Report) else before.take(np.array(measured, dtype=np.int64))
                server.measure_by(rows)
            attempt()
        except Exception as error:
            if is_of_the_machine(error):
                raise
            return True
        finally:
            if before is not None:
                server.measure_by(before)
        return False


def is_of_the_machine(error: Exception) -> bool:
    """Return whether an error comes from the machine, not from the content of an entry: the next attempt may succeed.

    Such an error ends the server, which continues from its journal at the next start.
    """
    if isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _NO_MEMORY):
        return True
    return isinstance(error, CheckpointError | OSError | MemoryError) and not isinstance(error, ReportLost)
