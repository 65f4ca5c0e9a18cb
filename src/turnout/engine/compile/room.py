"""Limit the memory of recorded CUDA graphs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

from turnout.core.device import memory_budget

_IDLE = 1000  # calls of other recordings after which one that was not called makes room for new ones


@dataclass(eq=False)
class Reservation:
    """The memory of a recording.

    Attributes:
        size: number of bytes.
        delete: function that deletes the recording.
        used: number of the last call of the recording, among the calls of all recordings.
    """

    size: int
    delete: Callable[[], object]
    used: int


class Room:
    """A limit in bytes on the memory that all recordings hold beside their arguments.

    Attributes:
        left: bytes that may still be reserved.
    """

    def __init__(self, size: int) -> None:
        self.left = size
        self._calls = 0
        self._reservations: list[Reservation] = []

    def has(self, size: int) -> bool:
        """Return whether bytes are left, if necessary after deleting recordings that have not been called for long."""
        for reservation in sorted(self._reservations, key=lambda reservation: reservation.used):
            if size <= self.left or self._calls - reservation.used <= _IDLE:
                break
            reservation.delete()
        return size <= self.left

    def take(self, size: int, holder: object, delete: Callable[[], object]) -> Reservation:
        """Reserve bytes until the holder is deleted.

        Args:
            size: number of bytes.
            holder: the recording.
            delete: function that deletes the recording, and does not keep it alive.
        """
        reservation = Reservation(size, delete, self._calls)
        self.left -= size
        self._reservations.append(reservation)
        weakref.finalize(holder, self._release, reservation)
        return reservation

    def use(self, reservation: Reservation) -> None:
        """Note a call of a recording."""
        self._calls += 1
        reservation.used = self._calls

    def _release(self, reservation: Reservation) -> None:
        self._reservations.remove(reservation)
        self.left += reservation.size


@functools.cache
def room_of(device: torch.device) -> Room:
    """Return the common limit of all recordings on a device."""
    return Room(memory_budget(device))
