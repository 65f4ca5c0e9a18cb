"""Synchronous rounds: a cohort trains, and the server steps when it has reported or at a deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.ranges import NotNegative, Positive
from turnout.protocol.pace.actions import Action, Choose, Course, SetTimer, Step, Training
from turnout.protocol.pace.pace import Pace
from turnout.protocol.pace.phases import PhasedPace, Round, dropped
from turnout.protocol.pace.tasks import rows


@dataclass(frozen=True)
class Rounds(Pace, name="rounds"):
    """Train in synchronous rounds, with a server step when the cohort has reported or at a deadline.

    A cohort of m clients trains, and the server steps when ``m / over_selection`` of them have reported. Clients that
    have not reported by then, or by the deadline, are asked to stop. A round also ends when no client is working any
    more; it may end without a report, as an empty step. A report that arrives exactly at the deadline counts.

    If an algorithm measures before it selects a cohort, or prepares before the first round, a round has more phases:
    each selects clients, waits for all of them or for the deadline, and processes their reports. If the aggregation
    declares phases after training, the clients that trained are asked for these, and those that send their update are
    in the step.

    With a quorum of k reports, a grace window opens with the k-th report. It lasts `grace` times as long as the server has
    waited for the k-th report, so that it adapts to how fast clients are in this round:

        end = t_k + grace (t_k - t_0),

    with the start t_0 of the phase and the time t_k of the k-th report. Reports within the window are used.

    Attributes:
        deadline: maximum duration of a phase in seconds, > 0; None waits for all clients.
        over_selection: factor >= 1 by which the cohort is enlarged; 1.3 asks 13 clients and uses the first 10 reports.
        quorum: k, the number of reports in the phase ``"train"`` that open the grace window, >= 1; None opens none.
        grace: length of the window, in multiples of the time to the k-th report, >= 0.

    Raises:
        ConfigurationError: if `deadline` is not positive, `over_selection` is below 1, `quorum` is below 1, or `grace` is
            negative.

    Example:
        >>> import turnout as to
        >>> from turnout.simulation.schedule import schedule
        >>> two = to.Population(speed=to.speed.Speed(compute=to.delay.Uniform(1, 2)))
        >>> schedule(to.pace.Rounds(deadline=1.5), two, num_clients=4, steps=3).outcomes()["late"]
        7

    References: Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019, section 2.2; a quorum with
    a grace window: "Decoupled DiLoCo", arXiv 2604.21428, whose window has another length.
    """

    steps_are_rounds: ClassVar[bool] = True

    deadline: Positive | None = None
    over_selection: Positive = 1.0
    quorum: Annotated[int, partial(count, instead="Write None to wait for all clients")] | None = None
    grace: NotNegative = 0.5

    def __post_init__(self) -> None:
        if self.over_selection < 1:
            raise refuse(
                "over_selection", given=self.over_selection, needed="a factor >= 1", instead="1.3 asks 30% more"
            )

    def bind(self, num_clients: int, course: Course = Training()) -> BoundRounds:  # noqa: B008  # a constant
        """Return the state machine for any number of clients."""
        return BoundRounds(self, course, [0] * num_clients if course.continues else None)


class BoundRounds(PhasedPace):
    """The state machine of `Rounds`.

    Attributes:
        options: the options.
        client_versions: the version that each client trains from; None if all train from the present one.
    """

    def __init__(self, options: Rounds, course: Course, client_versions: list[int] | None) -> None:
        super().__init__(course)
        self.options, self.client_versions = options, client_versions
        self.mixes_versions = client_versions is not None
        self._round = Round(0, self.phases[0], is_running=False)
        self._closed = 0  # number of phases so far: the timer of the present one
        self._needed = 0
        self._started = 0.0  # time at which the present phase began

    @property
    def running(self) -> bool:
        """True if the present phase has started; False if its clients are still to be selected."""
        return self._round.is_running

    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Send tasks to the clients. A round without clients ends at its deadline, or at once if there is none."""
        if self.running:
            raise ConfigurationError(f"round {self.version} is running: choose a cohort when it is over")
        deadline, trains = self.options.deadline, self._round.phase == "train"
        if not clients and self._round.phase in self.extra:
            unsummed, self._round.trained = dropped(self._round.trained, "unsummed"), []
            return [*unsummed, *self._finish(self._round)]
        if not clients and (deadline is None or not trains):
            return self._close(self._round)
        version = self._asks_with(self._round)
        actions: list[Action] = [self.open.ask(clients, version, self._round.phase)] if clients else []
        self._round.is_running, self._started = True, time
        # 1e-9 keeps rounding errors from losing a report: 13 / 1.3 must be 10.
        self._needed = max(1, math.floor(len(clients) / self.options.over_selection + 1e-9)) if trains else len(clients)
        return actions if deadline is None else [*actions, SetTimer(self._closed, time + deadline)]

    @property
    def timers(self) -> set[int]:
        """The timer of the present phase."""
        return {self._closed}

    def _arrived(self, time: float, client: int, task: int, trained: int) -> list[Action]:
        """Store the report; close the phase if enough clients have reported, or none is working any more."""
        self._round.reports.append((task, client))
        return self._close_if_done() or self._open_window(time)

    def all_reported(self, time: float) -> list[Action]:
        """Handle the reports of all open tasks, as if they had arrived at once."""
        self._round.reports += zip(*self.open.end_all(), strict=True)
        return self._close_if_done()

    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Select clients again if there were none; clients that join a running round wait for the next one."""
        return [] if self.running else [self._choose()]

    def expired(self, time: float, timer: int) -> list[Action]:
        """Close the phase at its deadline."""
        return self._close(self._round) if self.running and timer == self._closed else []

    def grow(self, num_clients: int) -> None:
        """Let new clients start from the present model."""
        if self.client_versions is not None:
            self.client_versions += [self.version] * (num_clients - len(self.client_versions))

    def ignores(self, client: int, joins: bool) -> bool:
        """Return True if a round is running (a client joins), or if the client has no task (it leaves)."""
        return self.running if joins else self.idle(client)

    def versions(self) -> set[int]:
        """Return the present version and the versions that clients train from."""
        return {self.version, *(self.client_versions or ())}

    def pending(self) -> list[tuple[int, int, int]]:
        """Return the reports of the running phase, (task, client, version), in the order of arrival."""
        version = self._asks_with(self._round)
        return [(task, client, version) for task, client in self._round.trained or self._round.reports]

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        phase = self.phases.index(self._round.phase)
        facts = np.array([self.version, self.running, self._needed, phase, self._closed])
        kept = {} if self.client_versions is None else {"kept": np.array(self.client_versions, dtype=np.int64)}
        trained = {"trained": rows(self._round.trained, 2)} if self.extra else {}
        began = {} if self.options.quorum is None else {"started": np.array([self._started]).view(np.int64)}
        return self.open.state() | kept | trained | began | {"round": facts, "reports": rows(self._round.reports, 2)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.open.restore(state)
        self.version, running, self._needed, phase, self._closed = state["round"].tolist()
        reports, trained = (
            [(task, client) for task, client in state[name].tolist()] if name in state else []
            for name in ("reports", "trained")
        )
        self._round = Round(self.version, self.phases[phase], 0, [], reports, trained, bool(running))
        self.client_versions = None if self.client_versions is None else state["kept"].tolist()
        if "started" in state:
            self._started = float(state["started"].view(np.float64)[0])

    def _choose(self) -> Choose:
        factor = self.options.over_selection if self._round.phase == "train" else 1.0
        return Choose(None, factor=factor, phase=self._round.phase)

    def _close_if_done(self) -> list[Action]:
        """Close the phase if enough clients have reported or none is working any more."""
        done = self.running and (len(self._round.reports) >= self._needed or not len(self.open))
        return self._close(self._round) if done else []

    def _open_window(self, time: float) -> list[Action]:
        """Open the grace window if the last report was the k-th one of a phase of training."""
        if self._round.phase != "train" or len(self._round.reports) != self.options.quorum:
            return []
        return [SetTimer(self._closed, time + self.options.grace * (time - self._started))]

    def _close(self, round: Round) -> list[Action]:
        """Close the phase and invalidate its timer."""
        self._closed += 1
        return super()._close(round)

    def _end_tasks(self, round: Round) -> tuple[list[int], list[int]]:
        """Close all tasks."""
        return self.open.end_all()

    def _ask_next(self, round: Round, clients: Sequence[int]) -> list[Action]:
        """Start the next phase: after training with the clients that completed the last one, before it with a selection."""
        actions = super()._ask_next(round, clients)
        return actions if round.phase in self.extra else [self._choose()]

    def _finish(self, round: Round) -> list[Action]:
        """Take the step with the clients that trained, and start the next round."""
        tasks, clients = tuple(task for task, _ in round.trained), tuple(client for _, client in round.trained)
        versions = (self.version,) * len(clients)
        if self.client_versions is not None:
            versions = tuple(self.client_versions[client] for client in clients)
        step = Step(self.version, tasks, clients, versions)
        self.version += 1
        if self.client_versions is not None:
            for client in clients:
                self.client_versions[client] = self.version
        phase = next(phase for phase in self.phases if phase != "prepare")
        self._round = Round(self.version, phase, is_running=False)
        return [step, self._choose()]

    def _task_ended(self, clients: Sequence[int]) -> list[Action]:
        return self._close_if_done()

    def _clients_left(self, clients: Sequence[int], working: Sequence[int]) -> list[Action]:
        return self._close_if_done() if working else []
