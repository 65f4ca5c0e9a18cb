"""Read age, processor time and memory of this process from the system."""

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
    """Return the seconds since this process was started, or since this module was loaded where the system does not say."""
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
        process: of this process, and of those it started that have ended.
        machine: of everything on the machine; None where the system does not say.
        faults: pages that this process was given without reading them from a disk; None where the system does not say.
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
    """Return the peak resident memory of this process in MiB; NaN where the system does not say.

    Linux says it as VmHWM. Its ``ru_maxrss`` would be that of the process that started this one, if that was larger.
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
    """Return how many units a second has in which Linux counts times."""
    return vars(os)["sysconf"]("SC_CLK_TCK")


def _fields() -> list[str]:
    """Return the fields of this process's ``stat`` behind its name, which may have blanks in it."""
    return (_PROC / "self" / "stat").read_text().rpartition(")")[2].split()
