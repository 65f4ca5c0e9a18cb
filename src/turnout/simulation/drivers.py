"""The two drivers of a simulated server: one cohort after the other, and by the clients' clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.protocol.batch import Stepped
from turnout.protocol.loop import carry_out
from turnout.protocol.pace import Ask, BoundRounds, Drop, Gather, Phase, SetTimer, Step
from turnout.protocol.scheduler import Scheduler
from turnout.record.rows import staleness
from turnout.simulation.virtual_time import VirtualTime


class Driver(Protocol):
    """What makes things happen."""

    def advance(self) -> Step | Gather:
        """Go on until the server is to step, or to gather what a phase of a round was for."""
        ...

    def figures(self, stepped: Stepped) -> dict[str, Any]:
        """Return the columns of the table of rounds that only such a driver has."""
        ...

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return all that it carries between two steps, as arrays in groups."""
        ...

    def restore(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Take over what `state` gave."""


class InStep:
    """Whoever is asked reports at once.

    Args:
        scheduler: the pace, and whom it asks.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.start(0.0)

    def advance(self) -> Step | Gather:
        """Ask a cohort, and have it report."""
        action = carry_out(self._scheduler, self, 0.0)
        assert action is not None  # a cohort of nobody is a step, too
        return action

    def ask(self, ask: Ask) -> None:
        """Have all of them report at once."""
        del ask
        pace = self._scheduler.pace
        assert isinstance(pace, BoundRounds)
        self._scheduler.happened(pace.all_reported(0.0))

    def dropped(self, drop: Drop) -> None:
        """Nothing: nobody is late or goes away, and of those whose updates get into no sum nothing is kept."""

    def timer(self, timer: SetTimer) -> None:
        """Nothing: without a clock there are no deadlines."""

    def figures(self, stepped: Stepped) -> dict[str, Any]:
        """Nothing."""
        del stepped
        return {}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Nothing."""
        return {}

    def restore(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Nothing."""
        del state


class ByTheClock:
    """Reports come when the clients' clock says so.

    Training is put off to the step that uses it: all reports of a step are trained together, each from the model of its own
    version.

    Args:
        virtual: the scheduler in virtual time.
    """

    def __init__(self, virtual: VirtualTime) -> None:
        self.virtual = virtual
        self._before, self._sent, self._between = 0.0, _copy(virtual.sent), True

    def advance(self) -> Step | Gather:
        """Go on to the next step, or to the end of a phase before it."""
        if self._between:
            self._before, self._sent = self.virtual.clock.now, _copy(self.virtual.sent)
        action = self.virtual.advance()
        if action is None:
            raise ConfigurationError(
                f"nothing will happen after second {self._before:g}: all tasks that are out take for ever, as draws of a "
                "delay do that overflow: write a delay with a lighter tail, such as delay.Pareto(shape=2.5)"
            )
        self._between = isinstance(action, Step)
        return action

    def figures(self, stepped: Stepped) -> dict[str, Any]:
        """Return how long the step took, how stale its reports are, what was not used, and the bytes sent meanwhile."""
        sent = {phase: now - self._sent[phase] for phase, now in _copy(self.virtual.sent).items()}
        measured = sent.pop("measure", None)
        down, up = np.sum(list(sent.values()), axis=0)
        return {
            "simulated_seconds": self.virtual.clock.now - self._before,
            "num_unused": int((self.virtual.log.take()[0]["stepped"] < 0).sum()),
            "bytes_down": int(down),
            "bytes_up": int(up),
            **staleness(stepped),
        } | ({} if measured is None else {"bytes_measured": int(measured.sum())})

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what virtual time carries."""
        return self.virtual.state()

    def restore(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Take over what `state` gave."""
        self.virtual.restore(state)


def _copy(sent: Mapping[Phase, Sequence[int]]) -> dict[Phase, np.ndarray]:
    """Bytes down and up by phase, as they are now."""
    return {phase: np.array(counts, dtype=np.int64) for phase, counts in sent.items()}
