"""Log the outcome of each task in virtual time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from turnout.protocol.pace.actions import REASONS, Reason

OUTCOMES = ("used", *REASONS)
"""The outcomes of a task, by their code in the column `outcome`."""

_COLUMNS = {"task": "q", "client": "q", "version": "q", "asked": "d", "ended": "d", "stepped": "q", "outcome": "b"}


class TaskLog:
    """A log of ended tasks, in the order in which the server used or dropped them, and of the times of server steps."""

    def __init__(self) -> None:
        self._tasks = {name: array(code) for name, code in _COLUMNS.items()}
        self._steps = array("d")

    def step(self, time: float) -> None:
        """Log a server step."""
        self._steps.append(time)

    def end(self, stepped: int = -1, reason: Reason | None = None, **columns: Sequence[float]) -> None:
        """Log tasks that ended.

        Args:
            stepped: the version whose step used them; -1 if none did.
            reason: the reason why they were dropped; None if they were used.
            **columns: the other columns.
        """
        number = len(columns["task"])
        outcome = 0 if reason is None else OUTCOMES.index(reason)
        for name, values in {**columns, "stepped": [stepped] * number, "outcome": [outcome] * number}.items():
            self._tasks[name].extend(values)  # type: ignore[arg-type]

    def take(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the columns of tasks and the times of steps since the last call, and clear the log."""
        columns = {name: np.array(column) for name, column in self._tasks.items()}, np.array(self._steps)
        self.__init__()
        return columns
