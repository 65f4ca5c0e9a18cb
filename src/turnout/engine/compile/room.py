"""Limit the memory of recorded CUDA graphs."""

from __future__ import annotations

import functools
import weakref

import torch

from turnout.core.device import memory_budget


class Room:
    """A limit in bytes on the memory that all recordings hold beside their arguments.

    Attributes:
        left: bytes that may still be reserved.
    """

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, size: int, holder: object) -> None:
        """Reserve bytes until the holder is deleted."""
        self.left -= size
        weakref.finalize(holder, self._release, size)

    def _release(self, size: int) -> None:
        self.left += size


@functools.cache
def room_of(device: torch.device) -> Room:
    """Return the common limit of all recordings on a device."""
    return Room(memory_budget(device))
