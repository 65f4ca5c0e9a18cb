"""Count the processors that this process may use, and wait for devices."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path, PurePosixPath

import torch

from turnout.core.system import allowed_processors


def num_processors() -> int:
    """Return the number of processors that this process may keep busy, within its affinity and its container's quota.

    A quota of 2.5 processors counts as 2: a third thread would be stopped half of the time, and the others would wait
    for it.
    """
    return max(1, int(min(allowed_processors(), quota())))


def quota(root: Path = Path("/")) -> float:
    """Return the limit of Linux control groups on this process, in processors; infinite without a limit.

    It is the smallest of the limits of its control groups, of versions 1 and 2, and of all groups that contain these.

    Args:
        root: parent folder of ``proc`` and ``sys``.
    """
    mounted, limits = root / "sys/fs/cgroup", [math.inf]
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        of_cpu = "cpu" in controllers.split(",")
        if controllers and not of_cpu:
            continue
        # In older containers, the group is mounted as the root and not under its name.
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
                        limits.append(time / period)
    return min(limits)


def synchronize(device: torch.device) -> None:
    """Wait until a device has completed its operations."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _text(path: Path) -> str:
    """Return the text of a file; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
