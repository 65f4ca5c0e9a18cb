"""Take server steps that raise errors while the reports at fault are still known."""

from __future__ import annotations

from functools import partial

from turnout.base import RecordingSelection
from turnout.base.algorithm import Algorithm
from turnout.base.rollback import Rollback
from turnout.base.server_step import server_step
from turnout.core.types import Federation, Info, Report, ServerState
from turnout.protocol.cohorts import Cohorts


def blamable_step(
    algorithm: Algorithm, cohorts: Cohorts, blames: bool, state: ServerState, reports: Report, federation: Federation
) -> tuple[ServerState, Info]:
    """Take the server step of an algorithm, and leave the state unchanged if a piece raises an error.

    Args:
        algorithm: the algorithm.
        cohorts: selection of the next round's cohort.
        blames: whether to raise an error if a step overflows, or if the next selection would raise one because of the
            reports that it recorded in the step, since they are no longer known when it selects. It has no effect if
            reports change sums over the memories of clients, or if leaving out a report would reveal something about
            its data.
        state: the server's state before the step.
        reports: reports of the step.
        federation: known properties of the federation.

    Returns:
        The state after the step, and its figures for logging.
    """
    mirrors = algorithm.aggregation.controls.mirrors_clients
    blames = blames and not (algorithm.keeps or mirrors or algorithm.nulls_dropped)
    step = partial(server_step, algorithm, state, reports, federation, refuses_overflow=blames)
    if not (blames and isinstance(algorithm.selection, RecordingSelection)):
        return step()
    undo = Rollback.of(algorithm, state, reports)
    after, info = step()
    if (error := _selection_error(cohorts, after, after.version)) is None:
        return after, info
    undo()
    # The next selection raises this error whatever the reports are.
    if _selection_error(cohorts, state, after.version) is not None:
        return step()
    raise error


def _selection_error(cohorts: Cohorts, state: ServerState, version: int) -> Exception | None:
    """Return the error that the selection raises at a version, with the records of a state; None if it raises none."""
    try:
        cohorts.check(state.slots["selection"], version)
    except Exception as error:
        return error
    return None
