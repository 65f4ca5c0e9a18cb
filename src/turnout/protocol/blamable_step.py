"""Take server steps that raise errors while the reports at fault are still known."""

from __future__ import annotations

from functools import partial

from turnout.base import RecordingSelection
from turnout.base.algorithm import Algorithm
from turnout.base.rollback import Rollback
from turnout.base.server_step import server_step
from turnout.core.types import Federation, Info, Report, ServerState
from turnout.protocol.cohorts import Cohorts


class BlamableStep:
    """Take the server step of an algorithm, and leave the state unchanged if a piece raises an error.

    Args:
        algorithm: the algorithm.
        cohorts: selection of the next round's cohort.
        blames: whether to raise an error if a step overflows, or if the next selection would raise one because of the
            reports that it recorded in the step, since they are no longer known when it selects. It has no effect if
            reports change sums over the memories of clients, or if leaving out a report would reveal something about
            its data.
    """

    def __init__(self, algorithm: Algorithm, cohorts: Cohorts, blames: bool) -> None:
        self._algorithm, self._cohorts = algorithm, cohorts
        mirrors = algorithm.aggregation.controls.mirrors_clients
        self._blames = blames and not (algorithm.keeps or mirrors or algorithm.nulls_dropped)
        self._tries_selection = self._blames and isinstance(algorithm.selection, RecordingSelection)

    def __call__(self, state: ServerState, reports: Report, federation: Federation) -> tuple[ServerState, Info]:
        """Return the state after a step, and its figures for logging."""
        step = partial(server_step, self._algorithm, state, reports, federation, refuses_overflow=self._blames)
        if not self._tries_selection:
            return step()
        undo = Rollback.of(self._algorithm, state, reports)
        after, info = step()
        if (error := self._selection_error(after, after.version)) is None:
            return after, info
        undo()
        # The next selection raises this error whatever the reports are.
        if self._selection_error(state, after.version) is not None:
            return step()
        raise error

    def _selection_error(self, state: ServerState, version: int) -> Exception | None:
        """Return the error that the selection raises at a version, with the records of a state; None if it raises none."""
        try:
            self._cohorts.check(state.slots["selection"], version)
        except Exception as error:
            return error
        return None
