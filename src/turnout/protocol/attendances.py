"""Record the clients in the phases after training, such as those of a secure sum."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from turnout.base.aggregation import ExtraPhases
from turnout.protocol.batch import Batch
from turnout.protocol.client_arrays import Participations
from turnout.protocol.pace import Choose, Step
from turnout.protocol.pace.actions import select
from turnout.protocol.secure.attendance import Attendance


class Attendances:
    """The attendance of the present round, or of each group of clients with its own round.

    Args:
        extra: the phases after training; None without any.
        seed: seed of the run.
        participations: records of participation, which limit the clients of a step.

    Attributes:
        of: attendance by group; 0 is the round of all clients.
        barred: clients that violated the protocol and are excluded from all further sums.
    """

    def __init__(self, extra: ExtraPhases | None, seed: int, participations: Participations) -> None:
        self._extra, self._seed, self._participations = extra, seed, participations
        self.of: dict[int, Attendance] = {}
        self.barred: set[int] = set()

    def ask(self, choose: Choose, version: int) -> list[int]:
        """Return the clients to ask for a phase, among those that completed the phase before."""
        assert self._extra is not None
        clients: Sequence[int] = choose.first
        if choose.phase == self._extra.names[0]:
            self.of[choose.group] = Attendance(self._extra.masking, (self._seed, choose.group or version))
            # A client cannot be removed from a sum later, so limits on participation apply before the first of these phases.
            may = self._participations.may(np.array(clients, dtype=np.int64), version)
            clients = [
                client for client, allowed in zip(clients, may, strict=True) if allowed and client not in self.barred
            ]
        return self.of[choose.group].ask(choose.phase, clients)

    def gathered(self, batch: Batch) -> None:
        """Record the clients that completed a phase."""
        self.of[batch.groups[0]].gathered(batch.phase, batch.clients.tolist())

    def summed(self, step: Step) -> Step:
        """Return a step with the tasks whose updates are in its sums; without tasks if no sum can be opened."""
        if not self.of:
            return step
        summed = {client for group in step.groups for client in self.of[group].used()}
        return select(step, [client in summed for client in step.clients])

    def group_of(self, groups: Sequence[int], clients: np.ndarray) -> np.ndarray | None:
        """Return the group of each client, int64 ``[B]``; None if there is at most one sum."""
        if not self.of or tuple(groups) == (0,):
            return None
        group_of = {client: group for group in groups for client in self.of[group].used()}
        return np.array([group_of[client] for client in clients.tolist()], dtype=np.int64)

    def keep(self, groups: Collection[int]) -> None:
        """Discard the attendance of all other groups."""
        self.of = {group: attendance for group, attendance in self.of.items() if group in groups}

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as arrays."""
        return {f"sum.{group}.{name}": value for group, of in self.of.items() for name, value in of.state().items()}

    def restore(self, state: Mapping[str, np.ndarray], version: int) -> None:
        """Restore what `state` returned; other arrays are ignored."""
        states: dict[int, dict[str, np.ndarray]] = {}
        for key, value in state.items():
            if key.startswith("sum."):
                _, group, name = key.split(".", 2)
                states.setdefault(int(group), {})[name] = value
        self.of = {}
        for number, arrays in sorted(states.items()):
            assert self._extra is not None
            self.of[number] = Attendance(self._extra.masking, (self._seed, number or version))
            self.of[number].restore(arrays)
