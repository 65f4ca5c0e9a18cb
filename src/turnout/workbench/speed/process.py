"""Read the age, processor time and memory of this process from the system."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

_BEGUN = time.monotonic()
_PROC = Path("/proc")


def age() -> float:
    """Return the seconds since this process was started; on systems without ``/proc`` since this module was imported."""
    try:
        ticks = int(_fields()[19])
        clock: Any = vars(time)
        return clock["clock_gettime"](clock["CLOCK_BOOTTIME"]) - ticks / _ticks()
    except (OSError, KeyError):
        return time.monotonic() - _BEGUN


@dataclass(frozen=True)
class Usage:
    """Processor seconds and pages so far.

    Attributes:
        process: seconds of this process and of its children that have ended.
        machine: seconds of all processes; None on systems without ``/proc``.
        faults: minor page faults of this process; None on systems without ``/proc``.
    """

    process: float
    machine: float | None
    faults: int | None

    @classmethod
    def now(cls) -> Usage:
        """Return the usage so far."""
        process_seconds = sum(os.times()[:4])
        try:
            user, nice, system, _, _, *interrupts = map(int, (_PROC / "stat").read_text().split("\n")[0].split()[1:9])
        except OSError:
            return cls(process_seconds, None, None)
        return cls(process_seconds, (user + nice + system + sum(interrupts)) / _ticks(), int(_fields()[7]))


def peak() -> float:
    """Return the peak resident memory of this process in MiB; NaN on Windows.

    On Linux it is VmHWM: ``ru_maxrss`` would be the peak of the parent process if that is larger.
    """
    try:
        lines = (_PROC / "self" / "status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        pass
    try:
        resource: Any = import_module("resource")
    except ImportError:  # Windows
        return math.nan
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS, in KiB elsewhere
    return most / 2**20 if sys.platform == "darwin" else most / 2**10


def _ticks() -> int:
    """Return the clock ticks per second, the unit of times in ``/proc``."""
    return vars(os)["sysconf"]("SC_CLK_TCK")


def _fields() -> list[str]:
    """Return the fields of ``/proc/self/stat`` after the name, which may contain blanks."""
    return (_PROC / "self" / "stat").read_text().rpartition(")")[2].split()
