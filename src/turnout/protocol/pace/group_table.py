"""The groups of clients of asynchronous training, and the group of each client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.protocol.pace.actions import Phase
from turnout.protocol.pace.phases import Round


class GroupTable:
    """The groups that work or wait for their step. A client is in at most one of them.

    Args:
        phases: phases of a round, in order.

    Attributes:
        active: working groups, by number.
        buffer: completed groups that wait for their step, in the order of completion.
        started: number of groups so far.
        group_of: group of each client, including clients that dropped out of their group.
    """

    def __init__(self, phases: tuple[Phase, ...]) -> None:
        self._phases = phases
        self.active: dict[int, Round] = {}
        self.buffer: list[Round] = []
        self.group_of: dict[int, int] = {}
        self.started = 0
        self._newly_idle: list[int] = []

    def __iter__(self) -> Iterator[Round]:
        """Yield the working groups, then the waiting ones."""
        yield from (*self.active.values(), *self.buffer)

    def start(self, clients: Sequence[int], version: int) -> Round:
        """Add a group of idle clients, which train from a version.

        Raises:
            ConfigurationError: if a client is already in a group.
        """
        if taken := self.group_of.keys() & clients:
            raise ConfigurationError(
                f"client {min(taken)} is in group {self.group_of[min(taken)]}: choose one that is idle"
            )
        self.started += 1
        self._add(Round(version, "train", self.started, tuple(clients)), is_active=True)
        return self.active[self.started]

    def _add(self, group: Round, *, is_active: bool) -> None:
        self.group_of |= dict.fromkeys(group.members, group.number)
        if is_active:
            self.active[group.number] = group
        else:
            self.buffer.append(group)

    def complete(self, group: Round) -> None:
        """Move a working group to the buffer, where it waits for its step."""
        self.buffer.append(self.active.pop(group.number))

    def remove(self, group: Round) -> None:
        """Remove a group; all its clients become idle, including those that dropped out of it before."""
        self.active.pop(group.number, None)
        self.buffer = [other for other in self.buffer if other is not group]
        for client in group.members:
            del self.group_of[client]
        self._newly_idle += group.members

    def newly_idle(self) -> list[int]:
        """Return the clients of the groups that were removed since the last call."""
        idle, self._newly_idle = self._newly_idle, []
        return idle

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        facts = [
            (
                group.number,
                group.version,
                self._phases.index(group.phase),
                group.is_running,
                group.number in self.active,
            )
            for group in self
        ]
        members = [(group.number, client) for group in self for client in group.members]
        reports = [
            (group.number, kind, task, client)
            for group in self
            for kind, pairs in enumerate((group.reports, group.trained))
            for task, client in pairs
        ]
        return {
            "groups": np.array(facts, dtype=np.int64).reshape(-1, 5),
            "members": np.array(members, dtype=np.int64).reshape(-1, 2),
            "reports": np.array(reports, dtype=np.int64).reshape(-1, 4),
        }

    def restore(self, state: Mapping[str, np.ndarray], started: int) -> None:
        """Restore a state that `state` returned, and the number of groups so far."""
        self.active, self.buffer, self.group_of, self.started = {}, [], {}, started
        members, reports = state["members"], state["reports"]
        for number, version, phase, is_running, is_active in state["groups"].tolist():
            of_group = reports[reports[:, 0] == number]
            pairs = [
                [(task, client) for task, client in of_group[of_group[:, 1] == kind, 2:].tolist()] for kind in (0, 1)
            ]
            clients = tuple(members[members[:, 0] == number, 1].tolist())
            group = Round(version, self._phases[phase], number, clients, *pairs, is_running=bool(is_running))
            self._add(group, is_active=bool(is_active))
