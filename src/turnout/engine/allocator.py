"""Keep large buffers in the process. By default glibc returns them to the kernel after each step and faults them in again."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

SWITCH = "TURNOUT_ALLOCATOR"
"""An environment variable; ``default`` leaves the allocator as it is."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of malloc.h's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_MOST_IN_OLD_VERSIONS = 1 << 25  # what glibc took before 2.35

SERVER = 1 << 25
"""The most bytes of a buffer that a server keeps: models and sums of reports go back to the system when they are dropped."""

_kept = {"bytes": 0}


def keep_large_buffers(most: int = 1 << 30) -> bool:
    """Have glibc's malloc keep the buffers that a program frees; returns whether it took that.

    A setting of the whole process, so the command line makes it for its own processes, and the library never does by
    itself: call this first thing in a program of your own. It pays where steps have buffers of megabytes (convolutions,
    recurrent layers, many clients at once); the cost is up to `most` bytes of free memory that stay reserved. Nothing is
    done where

    - another C library or another allocator (``LD_PRELOAD``) is at work,
    - the environment has settings for malloc already (``MALLOC_...``, ``GLIBC_TUNABLES``), or
    - the environment says ``TURNOUT_ALLOCATOR=default``.

    Args:
        most: bytes of the largest buffer that is kept, and of free memory.
    """
    if _is_settled() or (mallopt := _mallopt()) is None:
        return False
    for size in (most, _MOST_IN_OLD_VERSIONS):
        if mallopt(_MMAP_THRESHOLD, size):
            _kept["bytes"] = size
            return bool(mallopt(_TRIM_THRESHOLD, most))
    return False


def setting() -> str:
    """Return the bytes of the largest buffer that malloc keeps, if this process or the environment says; or ``default``."""
    return str(_kept["bytes"] or os.environ.get("MALLOC_MMAP_THRESHOLD_", "default"))


def _is_settled() -> bool:
    """Return whether the environment chooses an allocator or its settings."""
    if os.environ.get(SWITCH) == "default" or "malloc" in os.environ.get("LD_PRELOAD", ""):
        return True
    return "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(n.startswith("MALLOC_") for n in os.environ)


def _mallopt() -> Callable[[int, int], int] | None:
    """Return the function of glibc that sets options of malloc; None with another C library."""
    try:
        library = ctypes.CDLL(None)
        return library.mallopt if hasattr(library, "gnu_get_libc_version") else None
    except (OSError, TypeError, AttributeError):  # where a program cannot open itself, as on Windows
        return None
