"""Describe the environment of a run and how it was started, for its folder."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.distributed import collectives
from turnout.record import storage
from turnout.record.sources import sources
from turnout.version import __version__

_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]+@")
"""Matches the password in the URL of a database."""


def environment(device: str | None = None) -> dict[str, Any]:
    """Return date, command line, versions, git commits, threads and device, as plain values.

    Args:
        device: the device of models, if known.
    """
    values = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [_PASSWORD.sub(r"\1***@", word) for word in sys.argv],
        "turnout": __version__,
        "turnout_commit": commit(Path(__file__).parent),
        "commit": commit(Path.cwd()),
        "sources": sources(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "processes": collectives.world_size(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    return values if device is None else {**values, "device": device}


def save_description(folder: Path, description: Mapping[str, Any], device: str | None = None) -> None:
    """Save the description of a run and its environment in its folder, by which other commands recognize a run.

    Args:
        folder: the folder of the run.
        description: the experiment as plain values.
        device: the device of models, if known.
    """
    files = {"config.json": description, "environment.json": environment(device)}
    storage.save(folder, {name: storage.json_writer(table) for name, table in files.items()})


@cache
def commit(folder: Path) -> str | None:
    """Return the git commit of a folder, with the suffix ``-dirty`` if files are modified; None outside of git."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
