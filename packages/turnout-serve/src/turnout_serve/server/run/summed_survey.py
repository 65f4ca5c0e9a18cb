"""The masked sum of the answers to one evaluation or query: its messages, phase by phase."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from turnout.core.types import State
from turnout.evaluation.queries import Question
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.masked_vectors import MaskedVectors
from turnout.protocol.secure.overlap import apart, as_bits
from turnout.protocol.survey import FIRST_TASK, SurveyRequest
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.run.stored_messages import StoredMessages
from turnout_serve.wire.assignment import Assignment

PHASES = ("share", "mask", "open")
"""The phases after clients have sent their keys, in this order."""


class SummedSurvey:
    """Collect the messages of clients in the phases of one survey. The state follows from the messages, which are files.

    Args:
        setting: setting of the run.
        request: the evaluation or query.
        read: function that returns the body of a message, by its task and its digest.

    Attributes:
        layout: positions of the sums of a client in a vector.
        step: number of `PHASES` that have begun.
        culprits: clients that broke the protocol, and how.
        bodies: function that returns the digests of all messages so far.
    """

    def __init__(self, setting: RunSetting, request: SurveyRequest, read: Callable[[int, str], bytes]) -> None:
        self.layout = setting.answer_layout(Question(**request.question) if request.question else None)
        self.step, self._reason = 0, "too few clients are left"
        self.culprits: dict[int, str] = {}
        self._setting, self._read = setting, read
        self._seed = (setting.seed, FIRST_TASK + request.number)
        self._attendance = Attendance(self.layout.masking, self._seed)
        self._messages = StoredMessages(setting, read)
        self.bodies = self._messages.bodies

    @property
    def group(self) -> int:
        """The clients whose answers are to be in the sum, as by `as_bits`, once shares of their masks are distributed."""
        return as_bits(self._attendance.masked if self.phase == "open" else self._attendance.neighbors)

    @property
    def phase(self) -> str | None:
        """The present phase; None while clients send their keys."""
        return PHASES[self.step - 1] if self.step else None

    def take(self, client: int, body: str, task: Assignment) -> None:
        """Add the message of a client on a task of the present phase.

        Raises:
            WireError: if the message has another form.
        """
        self._setting.answer_format(task).read(self._read(task.task, body))
        self._messages.take(self.phase or "train", client, body, task)

    def advance(self, clients: Collection[int], earlier: Sequence[int] = ()) -> list[int]:
        """End the present phase; return the clients of the next one, or none where no sum can be opened.

        Args:
            clients: those that completed the phase.
            earlier: groups of earlier sums, as by `as_bits`, which clients hold against another one that is too similar.
        """
        clients = sorted(clients)
        if self.phase is not None:
            self.culprits |= self._side().gathered(self.phase, clients)
            self._attendance.gathered(self.phase, clients)
        if self.step == len(PHASES):
            return []
        least = self.layout.masking.min_clients
        if self.phase is None and len(clients) >= least and not (clients := apart(clients, earlier, least, self._seed)):
            self._reason = f"every group of these clients differs from an earlier one by fewer than {least} clients"
        chosen = self._attendance.ask(PHASES[self.step], clients)
        self.step += 1
        return chosen

    def inputs(self, clients: Sequence[int]) -> dict[int, State]:
        """Return the inputs of clients for their tasks of the present phase, ``[1, ...]`` by name."""
        assert self.phase is not None
        return self._side().inputs(self.phase, clients)

    def total(self) -> tuple[np.ndarray | None, list[int], str]:
        """Return the sum of the clients' vectors, the clients in it, and the reason if there is no sum."""
        used = set(self._attendance.used())
        if not used:
            return None, [], self._reason
        helpers = sorted(used.intersection(self._messages.senders(PHASES[-1])))
        total, culprits, why = self._side().total(helpers)
        self.culprits |= culprits
        return (None, [], why) if total is None else (total, sorted(used), "")

    def _side(self) -> MaskedVectors:
        return MaskedVectors(self.layout.masking, self.layout.size, self._attendance, self._messages)

    def facts(self) -> dict[str, Any]:
        """Return the state as plain values."""
        attendance = {name: value.tolist() for name, value in self._attendance.state().items()}
        return {"step": self.step, "messages": self._messages.facts(), "attendance": attendance}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore what `facts` returned."""
        self.step = facts["step"]
        self._messages.restore(facts["messages"])
        kinds = {"opens": bool}
        state = {name: np.array(value, dtype=kinds.get(name, np.int64)) for name, value in facts["attendance"].items()}
        state["refused"] = state["refused"].reshape(-1, 2)
        self._attendance.restore(state)
