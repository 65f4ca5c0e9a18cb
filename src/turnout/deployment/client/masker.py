"""A client's answers in the extra phases of an aggregation, as bytes."""

from __future__ import annotations

from turnout.core.types import Report, State
from turnout.deployment.wire.format import Assignment, WireError, encode
from turnout.pieces.base.phases import ClientSide


class Masker:
    """Take a client through the extra phases of a round after the other.

    Args:
        side: the client's side of the aggregation's phases.
    """

    def __init__(self, side: ClientSide) -> None:
        self._side = side

    def announce(self, client: int, version: int, report: Report, memory: State) -> bytes | None:
        """Return what is sent of an update that stays here for now; see `ClientSide.announce`."""
        tensors = self._side.announce(client, version, report, memory)
        return None if tensors is None else encode(tensors)

    def answer(self, task: Assignment, memory: State) -> tuple[bytes, State] | None:
        """Do the task of an extra phase: the body, and what is remembered; None where the client drops out."""
        try:
            told = {name: value[0] for name, value in task.tensors().items()}
        except WireError as error:
            self._side.drop_out(str(error))
            return None
        done = self._side.answer(task.phase, task.version, told, memory)
        return None if done is None else (encode(done[0]), done[1])
