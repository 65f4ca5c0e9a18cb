"""How long the tasks and rounds of a run take on the clients' clock, and which tasks are never finished."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from turnout.core.checks import ConfigurationError, refuse
from turnout.core.types import Report
from turnout.pieces.base.algorithm import Algorithm
from turnout.population.behaviour.dropout import BoundDropout
from turnout.population.speed.durations import BoundSpeed
from turnout.protocol.pace import Phase

NumSteps = int | np.ndarray | Callable[[np.ndarray, int], np.ndarray]
"""Local steps of a task: one number, one for each client ``[N]``, or a function of (clients ``[B]``, version)."""


class Effort(NamedTuple):
    """What a task takes.

    Attributes:
        num_steps: its local steps, all >= 1; 0 of a phase in which nothing is computed.
        bytes_up: size of a report.
        bytes_down: size of what a client receives.
    """

    num_steps: NumSteps = 1
    bytes_up: int = 0
    bytes_down: int = 0


_BLOCK = 128  # tasks of a client that are computed ahead, at most
_AT_ONCE = 1 << 18  # tasks that are computed at a time, at most, if they are more than one of each client


class WorkTimes:
    """When each task ends, counted from the moment it is asked for.

    A duration belongs to a client and the number of its task, so the next ones of a client can be computed ahead, many at
    a time; only how many tasks each client has had is carried.

    Args:
        speed: how fast clients are.
        dropout: how often they drop out; None is never.
        num_steps, bytes_up, bytes_down: what training takes; see `Effort`.
        others: what the tasks of other phases take; none where clients do nothing but train.

    Raises:
        ConfigurationError: for numbers of steps below 1, or not one for each client.
    """

    def __init__(
        self,
        speed: BoundSpeed,
        dropout: BoundDropout | None = None,
        num_steps: NumSteps = 1,
        bytes_up: int = 0,
        bytes_down: int = 0,
        others: Mapping[Phase, Effort] | None = None,
    ) -> None:
        self.speed, self.dropout = speed, dropout
        self.efforts: dict[Phase, Effort] = {"train": self._checked(Effort(num_steps, bytes_up, bytes_down), least=1)}
        self.efforts |= {phase: self._checked(effort) for phase, effort in (others or {}).items()}
        self._drawn: dict[int, int] = {}  # how many tasks of each client were computed, those ahead included
        self._ahead: dict[int, array[float]] = {}  # the next tasks of each client, the last one first

    def _checked(self, effort: Effort, least: int = 0) -> Effort:
        """Return the effort with its numbers of steps as an array, if they are numbers."""
        if callable(effort.num_steps):
            return effort
        num_steps = np.asarray(effort.num_steps)
        if not least and not num_steps.any():
            return effort._replace(num_steps=num_steps)
        _check_steps(num_steps)
        if num_steps.ndim and num_steps.shape != (self.speed.num_clients,):
            needed = f"one number, or one for each of {self.speed.num_clients} clients"
            raise refuse("num_steps", given=f"shape {num_steps.shape}", needed=needed)
        return effort._replace(num_steps=num_steps)

    def next(
        self,
        clients: Sequence[int],
        version: int,
        likely: Callable[[], Iterable[int]] = tuple,
        phase: Phase = "train",
    ) -> list[float]:
        """For the next task of each of these (different) clients: its seconds; ``-1 - seconds`` if the client dies then.

        Args:
            clients: who they are.
            version: what they are asked with.
            likely: who may be asked next, which changes nothing but the time that this takes: many at once take hardly
                longer than one.
            phase: what they are asked for.
        """
        ahead, effort = self._ahead, self.efforts[phase]
        if callable(effort.num_steps) or len(self.efforts) > 1:  # what a client's next task is shows when it is asked
            self._draw(clients, 1, effort._replace(num_steps=_steps_of(effort, clients, version)))
        elif missing := [client for client in clients if not ahead.get(client)]:
            some = list(dict.fromkeys([*missing, *(client for client in likely() if not ahead.get(client))]))
            # As many as they have had so far: where there are many clients, hardly anybody comes again.
            had = sum(self._drawn.get(client, 0) for client in some) // len(some)
            each = min(1 + had, _BLOCK, max(1, _AT_ONCE // len(some)))
            self._draw(some, each, effort._replace(num_steps=np.repeat(_steps_of(effort, some, version), each)))
        return [ahead[client].pop() for client in clients]

    def _draw(self, some: Sequence[int], each: int, effort: Effort) -> None:
        """Compute the next tasks of some clients, `each` of them, with an effort that has the steps of every task."""
        clients = np.repeat(np.array(some, dtype=np.int64), each)
        first = [self._drawn.get(client, 0) for client in some]
        tasks = (np.array(first)[:, None] + np.arange(each)).ravel()
        assert not callable(effort.num_steps)
        durations = self.speed.seconds(clients, tasks, effort.num_steps, effort.bytes_up, effort.bytes_down)
        seconds = durations.total if np.any(effort.num_steps) else durations.download + durations.upload
        if self.dropout is not None:
            death = self.dropout.deaths(clients, tasks, seconds)
            seconds = np.where(death < seconds, -1.0 - death, seconds)
        for client, done, row in zip(some, first, seconds.reshape(-1, each)[:, ::-1], strict=True):
            self._drawn[client] = done + each
            self._ahead[client] = array("d", row.tobytes())

    def state(self) -> dict[str, np.ndarray]:
        """How many tasks each client has had, as an int64 array."""
        had = ((client, drawn - len(self._ahead.get(client, ()))) for client, drawn in self._drawn.items())
        counts = [(client, number) for client, number in had if number]
        return {"counts": np.array(counts, dtype=np.int64).reshape(-1, 2)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        self._drawn = dict(state["counts"].tolist())
        self._ahead = {}


def _steps_of(effort: Effort, clients: Sequence[int], version: int) -> np.ndarray:
    """Local steps of the tasks of these clients, int64 ``[B]``."""
    if callable(effort.num_steps):
        steps = np.asarray(effort.num_steps(np.array(clients), version))
        _check_steps(steps)
        return steps
    steps = np.asarray(effort.num_steps)
    return np.broadcast_to(steps, len(clients)) if steps.ndim == 0 else steps[np.array(clients, dtype=np.int64)]


def _check_steps(steps: np.ndarray) -> None:
    """Refuse tasks without a step."""
    if not np.issubdtype(steps.dtype, np.integer) or (steps < 1).any():
        raise ConfigurationError(
            f"num_steps: got {steps.min() if steps.size else steps}, needed whole numbers >= 1: have the selection skip "
            "clients who cannot do a step"
        )


def round_seconds(
    speed: BoundSpeed, algorithm: Algorithm, reports: Report, version: int, bytes_down: int, least: float = 0.0
) -> float:
    """Return the simulated seconds of a round: the server waits for the slowest of its cohort.

    Where the local rule has a `deadline` (`TimeBudget`'s tau), a round lasts so long, whoever is there. Measuring before
    the selection takes one more trip to whoever is slowest there, with the time of one local step for a client's gradient.
    The durations are those of the task with the number of the round, so they are the same for all algorithms.

    Args:
        speed: how fast the clients are.
        algorithm: whose round it was.
        reports: what came back.
        version: server steps before the round.
        bytes_down: size of what a client received.
        least: seconds that a round lasts at least.
    """
    trips = 0.0
    if (measured := reports.measured) is not None and len(measured):
        trips = _slowest(speed, measured, version, bytes_down, np.ones(len(measured), dtype=np.int64))
    if algorithm.local.deadline is not None:
        return max(trips + algorithm.local.deadline, least)
    if len(reports):
        trips += _slowest(speed, reports, version, bytes_down, reports.num_steps)
    return max(trips, least)


def _slowest(speed: BoundSpeed, reports: Report, version: int, bytes_down: int, num_steps: np.ndarray) -> float:
    """Return the longest of the tasks behind some reports."""
    tasks = np.full(len(reports), version)
    return float(speed.seconds(reports.client, tasks, num_steps, reports.nbytes, bytes_down).total.max())
