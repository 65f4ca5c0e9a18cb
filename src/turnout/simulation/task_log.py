"""What became of every task: a record that grows by whole columns."""

from __future__ import annotations

from array import array

import numpy as np

from turnout.protocol.pace.actions import REASONS, Drop, Step

OUTCOMES = ("used", *REASONS)
"""What can become of a task, by its code in the column `outcome`."""

_COLUMNS = {"task": "q", "client": "q", "version": "q", "asked": "d", "ended": "d", "stepped": "q", "outcome": "b"}


class TaskLog:
    """Tasks that have ended, in the order in which the server used or dropped them, and server steps."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._tasks = {name: array(code) for name, code in _COLUMNS.items()}
        self._steps = array("d")

    def used(self, step: Step, asked: list[float], arrived: list[float], time: float) -> None:
        """Log a server step, and the reports it used."""
        size = len(step.tasks)
        self._extend(
            task=step.tasks,
            client=step.clients,
            version=step.versions,
            asked=asked,
            ended=arrived,
            stepped=[step.version] * size,
            outcome=[0] * size,
        )
        self._steps.append(time)

    def dropped(self, drop: Drop, versions: list[int], asked: list[float], time: float) -> None:
        """Tasks that ended without being used."""
        size = len(drop.tasks)
        self._extend(
            task=drop.tasks,
            client=drop.clients,
            version=versions,
            asked=asked,
            ended=[time] * size,
            stepped=[-1] * size,
            outcome=[OUTCOMES.index(drop.reason)] * size,
        )

    def _extend(self, **columns: object) -> None:
        for name, values in columns.items():
            self._tasks[name].extend(values)  # type: ignore[arg-type]

    def take(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the columns of all tasks and the times of all steps since this was last called."""
        tasks = {name: np.array(column) for name, column in self._tasks.items()}
        steps = np.array(self._steps)
        self._clear()
        return tasks, steps
