"""Count the bytes between a simulated server and its clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from turnout.protocol.pace import Phase
from turnout.simulation.work_times import Effort

_NUMBER = 8  # bytes of the version in every task


class Traffic:
    """Bytes to clients and from clients by phase, without reports that are lost or not sent.

    A client that has measured a model does not receive it again to train.

    Args:
        efforts: the sizes of the messages of each phase.

    Example:
        >>> traffic = Traffic({"train": Effort(1, bytes_down=100, bytes_up=40)})
        >>> traffic.asked("train", [3, 7])
        >>> traffic.reported("train", 1)
        >>> traffic.take()
        {'train': (200, 40)}
    """

    def __init__(self, efforts: Mapping[Phase, Effort]) -> None:
        self._efforts = efforts
        self._down, self._up = dict.fromkeys(efforts, 0), dict.fromkeys(efforts, 0)
        self._measuring: set[int] = set()  # clients that have received the present model

    def asked(self, phase: Phase, clients: Collection[int]) -> None:
        """Count the tasks that the server sends."""
        receivers, down = set(clients), self._efforts[phase].bytes_down
        again = len(receivers & self._measuring) if phase == "train" else 0
        self._down[phase] += (len(receivers) - again) * down + again * min(down, _NUMBER)
        self._measuring = receivers if phase == "measure" else set()

    def reported(self, phase: Phase, number: int) -> None:
        """Count the reports that clients send."""
        self._up[phase] += number * self._efforts[phase].bytes_up

    def take(self) -> dict[Phase, tuple[int, int]]:
        """Return the bytes to clients and from clients since the last call, by phase."""
        taken = {phase: (down, self._up[phase]) for phase, down in self._down.items()}
        self._down, self._up = dict.fromkeys(taken, 0), dict.fromkeys(taken, 0)
        return taken
