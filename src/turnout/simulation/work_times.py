"""Compute the simulated durations of tasks and rounds, and the tasks in which clients drop out."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError, refuse
from turnout.core.types import Report
from turnout.population.behavior.leaving import BoundDropout
from turnout.population.speed.durations import BoundSpeed
from turnout.protocol.pace import Phase

NumSteps = int | np.ndarray | Callable[[np.ndarray, int], np.ndarray]
"""Local steps of a task: one number, a number for each client ``[N]``, or a function of (clients ``[B]``, version)."""


class Effort(NamedTuple):
    """The effort of a task.

    Attributes:
        num_steps: local steps, all >= 1; 0 for a phase without computation.
        bytes_up: size of a report.
        bytes_down: size of what a client receives.
    """

    num_steps: NumSteps = 1
    bytes_up: int = 0
    bytes_down: int = 0


_BLOCK = 128  # maximum number of tasks of a client that are drawn ahead
_AT_ONCE = 1 << 18  # maximum number of tasks that are drawn ahead at a time


class WorkTimes:
    """Draw the duration of each task.

    A duration is a function of the client and the number of its task, so that the next ones of a client can be drawn ahead,
    many at a time. The number of tasks of each client is the only state.

    Args:
        speed: the speed of clients.
        dropout: the dropout of clients; None is never.
        efforts: the effort of each phase; None is training alone, of one step.

    Raises:
        ConfigurationError: if numbers of steps are below 1, or if there is not one for each client.
    """

    def __init__(
        self,
        speed: BoundSpeed,
        dropout: BoundDropout | None = None,
        efforts: Mapping[Phase, Effort] | None = None,
    ) -> None:
        self.speed, self.dropout = speed, dropout
        self.efforts = {phase: self._checked(phase, it) for phase, it in (efforts or {"train": Effort()}).items()}
        self._drawn: dict[int, int] = {}  # number of tasks of each client, including those drawn ahead
        self._ahead: dict[int, array[float]] = {}  # the next tasks of each client, in reverse order

    def _checked(self, phase: Phase, effort: Effort) -> Effort:
        """Validate an effort, and return it with its numbers of steps as an array if they are numbers."""
        if callable(effort.num_steps):
            return effort
        num_steps = np.asarray(effort.num_steps)
        if phase == "train" or num_steps.any():
            _check_steps(num_steps)
        if num_steps.ndim and num_steps.shape != (self.speed.num_clients,):
            needed = f"one number, or one for each of {self.speed.num_clients} clients"
            raise refuse("num_steps", given=f"shape {num_steps.shape}", needed=needed)
        return effort._replace(num_steps=num_steps)

    def next(
        self,
        clients: Sequence[int],
        version: int,
        candidates: Callable[[], Iterable[int]] = tuple,
        phase: Phase = "train",
    ) -> list[float]:
        """Return the duration in seconds of the next task of each client, or ``-1 - seconds`` if the client dies then.

        Args:
            clients: the clients, all different.
            version: the version of their tasks.
            candidates: function that returns clients that may get a task next, whose durations are drawn ahead. It
                affects the speed alone: drawing many durations takes little longer than drawing one.
            phase: the phase of their tasks.
        """
        ahead, effort = self._ahead, self.efforts[phase]
        if callable(effort.num_steps) or len(self.efforts) > 1:  # the effort of later tasks is not known yet
            self._draw(clients, 1, effort, _steps_of(effort, clients, version))
        elif missing := [client for client in clients if not ahead.get(client)]:
            drawn = list(dict.fromkeys([*missing, *(client for client in candidates() if not ahead.get(client))]))
            # Draw ahead as many tasks as the clients have had: with many clients, few get a second task.
            had = sum(self._drawn.get(client, 0) for client in drawn) // len(drawn)
            number = min(1 + had, _BLOCK, max(1, _AT_ONCE // len(drawn)))
            self._draw(drawn, number, effort, np.repeat(_steps_of(effort, drawn, version), number))
        return [ahead[client].pop() for client in clients]

    def _draw(self, clients: Sequence[int], number: int, effort: Effort, num_steps: np.ndarray) -> None:
        """Draw the next tasks of clients, `number` for each, with the local steps of every task."""
        repeated = np.repeat(np.array(clients, dtype=np.int64), number)
        first = [self._drawn.get(client, 0) for client in clients]
        tasks = (np.array(first)[:, None] + np.arange(number)).ravel()
        durations = self.speed.seconds(repeated, tasks, num_steps, effort.bytes_up, effort.bytes_down)
        seconds = durations.total if num_steps.any() else durations.download + durations.upload
        if self.dropout is not None:
            death = self.dropout.deaths(repeated, tasks, seconds)
            seconds = np.where(death < seconds, -1.0 - death, seconds)
        for client, done, row in zip(clients, first, seconds.reshape(-1, number)[:, ::-1], strict=True):
            self._drawn[client] = done + number
            self._ahead[client] = array("d", row.tobytes())

    def state(self) -> dict[str, np.ndarray]:
        """Return the number of tasks of each client, as an int64 array."""
        had = ((client, drawn - len(self._ahead.get(client, ()))) for client, drawn in self._drawn.items())
        counts = [(client, number) for client, number in had if number]
        return {"counts": np.array(counts, dtype=np.int64).reshape(-1, 2)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        self._drawn = dict(state["counts"].tolist())
        self._ahead = {}


def _steps_of(effort: Effort, clients: Sequence[int], version: int) -> np.ndarray:
    """Return the local steps of the tasks of clients, int64 ``[B]``."""
    if callable(effort.num_steps):
        steps = np.asarray(effort.num_steps(np.array(clients), version))
        _check_steps(steps)
        return steps
    steps = np.asarray(effort.num_steps)
    return np.broadcast_to(steps, len(clients)) if steps.ndim == 0 else steps[np.array(clients, dtype=np.int64)]


def _check_steps(steps: np.ndarray) -> None:
    """Reject tasks without a step."""
    if not np.issubdtype(steps.dtype, np.integer) or (steps < 1).any():
        raise ConfigurationError(
            f"num_steps: got {steps.min() if steps.size else steps}, needed whole numbers >= 1: have the selection skip "
            "clients who cannot do a step"
        )


def round_seconds(
    speed: BoundSpeed, algorithm: Algorithm, reports: Report, version: int, bytes_down: int, least: float = 0.0
) -> float:
    """Return the simulated seconds of a round, in which the server waits for the slowest client of its cohort.

    If the local rule has a `deadline` (`TimeBudget`'s tau), training lasts that long. Measuring before the selection adds the
    time of the slowest client, with one local step for the gradient. Durations are those of the task whose number is that of
    the round, so that they are the same for all algorithms.

    Args:
        speed: the speed of clients.
        algorithm: the algorithm.
        reports: the reports of the round.
        version: number of server steps before the round.
        bytes_down: size of what a client received.
        least: minimum duration of a round in seconds.
    """

    def slowest(reports: Report, num_steps: np.ndarray) -> float:
        """Return the longest duration of the tasks of these reports."""
        tasks = np.full(len(reports), version)
        return float(speed.seconds(reports.client, tasks, num_steps, reports.nbytes, bytes_down).total.max())

    seconds = 0.0
    if (measured := reports.measured) is not None and len(measured):
        seconds = slowest(measured, np.ones(len(measured), dtype=np.int64))
    if (deadline := algorithm.local.traits.deadline) is not None:
        return max(seconds + deadline, least)
    if len(reports):
        seconds += slowest(reports, reports.num_steps)
    return max(seconds, least)
