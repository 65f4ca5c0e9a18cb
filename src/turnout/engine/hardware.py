"""What the machine gives this process: its processors, and devices that have memory of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import torch

from turnout.core.system import allowed_processors


def num_processors() -> int:
    """How many processors this process may keep busy: those it may run on, within its container's share of time.

    A share of 2.5 processors is 2: a third thread would be stopped half of the time, and the others would wait for it.
    """
    return max(1, int(min(allowed_processors(), quota())))


def quota(root: Path = Path("/")) -> float:
    """Processors' worth of time that Linux control groups let this process have; infinite where nothing says so.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    return min(_quotas(root), default=math.inf)


def synchronise(device: torch.device) -> None:
    """Wait for whatever a device has been given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limits of the process's groups, of version 2 and of version 1, and of all groups that these are in."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        of_cpu = "cpu" in controllers.split(",")
        if controllers and not of_cpu:
            continue
        # Where the group's folder is not mounted under its own name, as in older containers, that of its root is.
        for inside in (PurePosixPath(group), *PurePosixPath(group).parents):
            for tree in (mounted / controllers, mounted / "cpu") if of_cpu else (mounted, mounted / "unified"):
                folder = tree / inside.relative_to("/")
                if of_cpu:
                    limit = f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
                else:
                    limit = _text(folder / "cpu.max")
                with suppress(ValueError, ZeroDivisionError):  # "max 100000", or there is no such file
                    time, period = map(int, limit.split())
                    if time > 0:  # version 1 writes -1 for no limit
                        yield time / period


def _text(path: Path) -> str:
    """Return what a file holds; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
