"""What the system says of this process and those it started: age, processor time, memory."""

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
        ticks = int(_fields("self")[19])
        clock: Any = vars(time)
        return clock["clock_gettime"](clock["CLOCK_BOOTTIME"]) - ticks / _ticks()
    except (OSError, KeyError):
        return time.monotonic() - _BEGUN


@dataclass(frozen=True)
class Usage:
    """Processor seconds and pages so far.

    Attributes:
        process: of this process and those it started.
        machine: of everything on the machine; None where the system does not say.
        faults: pages that this process was given without reading them from a disk; None where the system does not say.
    """

    process: float
    machine: float | None
    faults: int | None

    @classmethod
    def now(cls) -> Usage:
        """Return the usage so far."""
        process_seconds = sum(os.times()[:4]) + sum(_cpu_seconds(pid) for pid in _family() if pid != os.getpid())
        try:
            user, nice, system, _, _, *interrupts = map(int, (_PROC / "stat").read_text().split("\n")[0].split()[1:9])
        except OSError:
            return cls(process_seconds, None, None)
        busy = user + nice + system + sum(interrupts)
        return cls(process_seconds, busy / _ticks(), int(_fields("self")[7]))


def peaks() -> list[float]:
    """Return the peak resident memory in MiB (VmHWM) of this process and of its living descendants, largest first.

    NaN where the system does not say.
    """
    sizes = [peak for pid in _family() if (peak := _peak(pid)) is not None]
    if not sizes:  # no Linux; ru_maxrss is in bytes on macOS, in KiB elsewhere
        try:
            resource: Any = import_module("resource")
        except ImportError:  # Windows
            return [math.nan]
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sizes = [most / 2**20 if sys.platform == "darwin" else most / 2**10]
    return sorted(sizes, reverse=True)


def _ticks() -> int:
    """Return how many units a second has in which Linux counts times."""
    return vars(os)["sysconf"]("SC_CLK_TCK")


def _family() -> list[int]:
    """List this process and its descendants."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            children.setdefault(int(_fields(folder.name)[1]), []).append(int(folder.name))
        except OSError:  # it has ended by now
            continue
    family, todo = [], [os.getpid()]
    while todo:
        family.append(todo.pop())
        todo += children.get(family[-1], [])
    return family


def _fields(pid: str) -> list[str]:
    """Return the fields of a process's ``stat`` behind its name, which may have blanks in it."""
    return (_PROC / pid / "stat").read_text().rpartition(")")[2].split()


def _cpu_seconds(pid: int) -> float:
    try:
        return sum(map(int, _fields(str(pid))[11:15])) / _ticks()
    except OSError:
        return 0.0


def _peak(pid: int) -> float | None:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)
