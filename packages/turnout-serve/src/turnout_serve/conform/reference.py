"""Do tasks as the reference client, with which other clients are compared."""

from __future__ import annotations

from turnout.core.types import State
from turnout_serve.client.worker import Worker
from turnout_serve.wire.assignment import Assignment


def reference_report(
    worker: Worker, task: Assignment, model: State, memory: State, client: int = 0
) -> tuple[bytes, State]:
    """Return the body of the report on a task, and the memory of the client afterwards.

    Raises:
        ValueError: if the client gives up the task.
    """
    if (done := worker.do(client, task, model, memory)) is None:
        raise ValueError(f"the reference client gives up task {task.task} of the phase {task.phase}")
    return done
