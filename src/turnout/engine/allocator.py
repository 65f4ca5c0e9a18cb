"""Keep large buffers in the process. By default, glibc returns them to the kernel after each step."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

SWITCH = "TURNOUT_ALLOCATOR"
"""An environment variable; ``default`` leaves the allocator as it is."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of malloc.h's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_MOST_IN_OLD_VERSIONS = 1 << 25  # the largest value that glibc accepted before 2.35

SERVER = 1 << 25
"""The maximum size in bytes of a kept buffer of a server: memory of models and sums returns to the system."""

_limit = {"bytes": 0}


def keep_large_buffers(most: int = 1 << 30) -> bool:
    """Let glibc's malloc keep freed buffers for reuse; return True if that is supported.

    This is a setting of the whole process. The command line makes it for its processes, and importing the library does not:
    call this function at the start of your program. It is useful if steps have buffers of megabytes (convolutions, recurrent
    layers, many clients at once), and costs up to `most` bytes of reserved memory. It has no effect if

    - another C library or another allocator (``LD_PRELOAD``) is in use,
    - the environment has settings of malloc (``MALLOC_...``, ``GLIBC_TUNABLES``), or
    - the environment has ``TURNOUT_ALLOCATOR=default``.

    Args:
        most: maximum size in bytes of a buffer, and of all free memory.
    """
    if _is_settled() or (mallopt := _mallopt()) is None:
        return False
    for size in (most, _MOST_IN_OLD_VERSIONS):
        if mallopt(_MMAP_THRESHOLD, size):
            _limit["bytes"] = size
            return bool(mallopt(_TRIM_THRESHOLD, most))
    return False


def setting() -> str:
    """Return the maximum size in bytes of a kept buffer, as set by this process or the environment, or ``default``."""
    return str(_limit["bytes"] or os.environ.get("MALLOC_MMAP_THRESHOLD_", "default"))


def _is_settled() -> bool:
    """Return True if the environment selects an allocator or its settings."""
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
