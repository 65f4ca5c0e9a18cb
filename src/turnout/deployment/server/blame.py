"""Find out whether reports or a piece are to blame where a computation raises.

The answer follows from the reports and from the state before it, so that whoever applies the journal again finds the same.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from turnout.core.checks import CheckpointError, TurnoutError
from turnout.core.registry import Registered
from turnout.core.types import Report
from turnout.deployment.server.files import ReportLost
from turnout.deployment.wire.messages import ReportFormat
from turnout.protocol.batch import Batch
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Gather, Phase, Step
from turnout.protocol.pace.actions import select


class Unusable(Exception):
    """Reports on these tasks cannot be used; the step is to be taken without them."""

    def __init__(self, tasks: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.tasks, self.reason = tasks, reason


class PieceFailed(TurnoutError, RuntimeError):
    """Code of the run that raises whatever clients report, so that there is no next step before it is mended."""

    @classmethod
    def of(cls, error: Exception, version: int, entry: int) -> PieceFailed:
        """Say which piece has raised, and what to do about it.

        Args:
            error: what it raised.
            version: of the step that could not be taken, or behind which nobody could be asked.
            entry: the entry of the journal that led to it.
        """
        return cls(
            f"{_origin(error)} raised {error!r} at step {version}, behind entry {entry} of the journal, and there is no "
            "report without which it can be taken. Nothing of this was saved: mend the code, and start the server again"
        )


def _origin(error: Exception) -> str:
    """Return the method of a piece that an error comes from, or else the function, with its line."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    of_pieces = [(frame, line) for frame, line in frames if isinstance(frame.f_locals.get("self"), Registered)]
    frame, line = (of_pieces or frames)[-1]
    name = frame.f_code.co_name
    if of_pieces:
        name = f"{type(frame.f_locals['self']).__name__}.{name}"
    return f"{name} ({frame.f_code.co_filename}:{line})"


def culprits(suspects: Sequence[int], raises: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return those of some reports without which a computation that raises does not.

    One bad report of B is found in about ``2 log2(B)`` attempts, for halves that raise nothing are not looked at again.

    Args:
        suspects: numbers of the reports, with all of which it raises.
        raises: whether it raises with some of them.

    Returns:
        The smallest set that bisection finds; all of them where it raises with each one alone.

    >>> culprits(range(8), lambda some: 3 in some or 6 in some)
    [3, 6]
    """
    good: list[int] = []

    def search(some: Sequence[int], known: bool) -> list[int]:
        if not known and not raises([*good, *some]):
            good.extend(some)
            return []
        if len(some) < 2:
            return list(some)
        half = len(some) // 2
        first = search(some[:half], False)
        # Where the first half raises nothing beside the good ones, the second half has to.
        return first + search(some[half:], not first)

    return search(list(suspects), False)


class Blame:
    """Whose reports make the pieces of a run raise: found by trying without some of them, which changes nothing.

    Args:
        coordinator: the server.
        formats: what reports look like, by phase.
        reports_of: returns the reports of a batch.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        formats: Mapping[Phase, ReportFormat],
        reports_of: Callable[[Coordinator, Batch], Report],
    ) -> None:
        self._coordinator, self._formats, self._reports_of = coordinator, formats, reports_of
        self._extra = coordinator.algorithm.aggregation.phases

    def of_choice(self, error: Exception) -> list[int]:
        """Return the rows of measurements for which the choice of the next cohort raises; none if no client is to blame."""
        if is_of_the_machine(error):
            return []
        rows = self._rows
        bad = culprits(range(rows), self._choice_raises)
        return [] if len(bad) == rows and self._choice_raises(()) else bad

    def of_action(self, error: Exception, action: Step | Gather) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return whose reports make a step or a phase raise.

        A piece is to blame where it raises for each report alone, and for reports that say nothing (`ReportFormat.blank`).
        With differential privacy nobody is left out: that would change the weights of others by what a client's data are.

        Returns:
            Tasks of the action, and rows of the measurements before it; None if no client is to blame.
        """
        tasks, rows = action.tasks, self._rows
        if is_of_the_machine(error) or not tasks:
            return None
        if isinstance(error, Unusable):
            return sorted(set(error.tasks).intersection(tasks)) or tasks, ()
        if isinstance(action, Gather) and action.phase in self._extra:
            return tasks, ()
        if self._coordinator.algorithm.aggregation.nulls_dropped:
            return None
        if self._extra:  # of a sum nobody can be left out
            return None if self._blanks_raise(action) else (tasks, ())

        def raises(some: Sequence[int]) -> bool:
            """Try some reports and measurements, of which the latter have negative numbers."""
            tried = {tasks[number] for number in some if number >= 0}
            part = select(action, [task in tried for task in tasks])
            return self._raises(lambda: self._check(part), [number for number in some if number < 0])

        bad = culprits([*range(len(tasks)), *range(-rows, 0)], raises)
        of_tasks = [tasks[number] for number in bad if number >= 0]
        if not bad or (len(of_tasks) == len(tasks) and self._blanks_raise(action)):
            return None
        return of_tasks, [number + rows for number in bad if number < 0]

    @property
    def _rows(self) -> int:
        """Number of clients that have measured before the present action."""
        return 0 if self._coordinator.measured is None else len(self._coordinator.measured)

    def _check(self, action: Step | Gather) -> None:
        batch = self._coordinator.batch(action)
        self._coordinator.check(batch, self._reports_of(self._coordinator, batch))

    def _choice_raises(self, rows: Sequence[int]) -> bool:
        return self._raises(self._coordinator.scheduler.check_choice, rows)

    def _blanks_raise(self, action: Step | Gather) -> bool:
        """Return whether an action raises where reports and measurements say nothing."""
        coordinator, params = self._coordinator, self._coordinator.state.params
        batch, measured = coordinator.batch(action), coordinator.measured
        blanks = self._formats[batch.phase].blank(batch.clients, batch.versions, params)
        if measured is not None:
            measured = self._formats["measure"].blank(measured.client, measured.version, params[:0])
        return self._raises(lambda: coordinator.check(batch, blanks), measured)

    def _raises(self, attempt: Callable[[], object], measured: Sequence[int] | Report | None) -> bool:
        """Return whether something raises with some rows of the measurements, or with others in their place."""
        coordinator, before = self._coordinator, self._coordinator.measured
        try:
            if before is not None and measured is not None:
                rows = measured if isinstance(measured, Report) else before.take(np.array(measured, dtype=np.int64))
                coordinator.measure_by(rows)
            attempt()
        except Exception as error:
            if is_of_the_machine(error):
                raise
            return True
        finally:
            if before is not None:
                coordinator.measure_by(before)
        return False


def is_of_the_machine(error: Exception) -> bool:
    """Return whether an error says nothing of an entry's content, so that it need not be raised at the next attempt.

    A server ends by such an error and goes on from its journal.
    """
    if (
        isinstance(error, torch.OutOfMemoryError)
        or "not enough memory" in str(error)
        or "t allocate memory" in str(error)
    ):
        return True  # as PyTorch says it on GPUs, and on CPUs, where it has no class of its own
    return isinstance(error, CheckpointError | OSError | MemoryError) and not isinstance(error, ReportLost)
