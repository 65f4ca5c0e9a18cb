"""The extra phases of an aggregation on the server: messages of the present round, and barred clients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from turnout.core.types import Report, State
from turnout.protocol.batch import Batch
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.secure.masked_sum import MaskedSum
from turnout.protocol.streaming import of_groups
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.run.stored_messages import StoredMessages
from turnout_serve.wire.assignment import Assignment

log = logging.getLogger("turnout.server")


class ExtraPhases:
    """Collect the messages of clients in the phases that an aggregation declares after training.

    The state follows from the messages, which are files, so a server that died continues in the middle of a round.

    Args:
        setting: setting of the run.
        coordinator: knows which clients take part in the phases, and the server's state.
        read: function that returns the body of a message, by its task and its digest.

    Attributes:
        bodies: function that returns the digests of the messages of the present round.
        keep: function that forgets the messages of a round that is over, but for those of some clients in other groups.
        declared: True where the aggregation has extra phases.
        barred: clients that are excluded from extra phases, and why.
    """

    def __init__(self, setting: RunSetting, coordinator: Coordinator, read: Callable[[int, str], bytes]) -> None:
        self._coordinator = coordinator
        self._extra, self._messages = setting.algorithm.aggregation.extra, StoredMessages(setting, read)
        self.bodies, self.keep = self._messages.bodies, self._messages.keep
        self.declared = self._extra is not None
        self.barred: dict[int, str] = {}

    def take(self, client: int, body: str, task: Assignment) -> None:
        """Add the message of a client on a task of the present round, or of its group."""
        if task.phase == "train":  # messages in a group that was dissolved are of no use
            self._messages.drop([client])
        self._messages.take(task.phase, client, body, task)

    def inputs(self, phase: str, clients: Sequence[int]) -> dict[int, State]:
        """Return the inputs of clients for their tasks of an extra phase; none in another phase."""
        if self._extra is None or phase not in self._extra.names:
            return {}
        return self._side(self._coordinator.scheduler.pace.group_of(clients[0])).inputs(phase, clients)

    def gathered(self, phase: str, clients: Sequence[int], group: int = 0) -> None:
        """Read the messages of a phase that is over, and exclude clients that break the protocol."""
        culprits = self._side(group).gathered(phase, clients)
        if culprits:
            log.warning("clients excluded from a secure sum: unreadable shares", extra={"clients": list(culprits)})
        self._bar(culprits)

    def report(self, batch: Batch) -> Report:
        """Compute the sum of a round, or of each group of a step; return no reports where none can be opened."""
        opened = [self._opened(group) for group in batch.groups]
        sums = [report for report in opened if report is not None]
        if not sums:
            return Report.empty(self._coordinator.server.state.params)
        if batch.group_of is None:
            return sums[0]
        reports = of_groups(sums)
        return reports.take(np.argsort(reports.client, kind="stable"))

    def _opened(self, group: int) -> Report | None:
        """Open the sum of a round or group, if enough clients have sent shares."""
        attendance = self._coordinator.attendances.of.get(group)
        if attendance is None or self._extra is None:
            return None
        version = self._coordinator.server.state.version
        if not attendance.opens:
            log.warning("a secure sum has too few clients", extra={"version": version})
            return None
        summed = set(attendance.used())
        helpers = [client for client in self._messages.senders(self._extra.names[-1]) if client in summed]
        report, culprits, why = self._side(group).report(helpers)
        if report is None:
            attendance.opens = False
            log.warning("a secure sum cannot be opened", extra={"version": version, "reason": why})
        self._bar(culprits)
        return report

    def _side(self, group: int) -> MaskedSum:
        """Return the server's part of the protocol in the present round, or in a group."""
        attendance = self._coordinator.attendances.of[group]
        return MaskedSum(self._coordinator.server, attendance, self._messages)

    def _bar(self, culprits: Mapping[int, str]) -> None:
        """Exclude clients that broke the protocol from all later sums."""
        for client, how in culprits.items():
            log.warning("client barred from secure sums", extra={"client": client, "reason": how})
        self.barred |= culprits
        self._coordinator.attendances.barred |= culprits.keys()

    def facts(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"sum": self._messages.facts(), "barred": {str(client): why for client, why in self.barred.items()}}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore what `facts` returned."""
        self.barred = {int(client): why for client, why in facts.get("barred", {}).items()}
        self._messages.restore(facts["sum"])
