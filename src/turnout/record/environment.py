"""Describe the environment of a run, how it was started, and by which sources, for its folder."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.distributed import collectives
from turnout.record import storage
from turnout.version import __version__

_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]+@")
"""Matches the password in the URL of a database."""

_NO_MATTER = ("cli", "export", "exports", "reporting", "trackers", "workbench", "version")
"""Parts of the package that print, plot and export, on which no figure depends."""


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


def imported_modules() -> list[str]:
    """Return the modules of the package that this process has imported and that figures depend on, without its name."""
    names = (name.removeprefix("turnout.") for name in sys.modules if name.startswith("turnout."))
    return sorted(name for name in names if name.partition(".")[0] not in _NO_MATTER)


def hash_of(modules: Iterable[str]) -> str:
    """Return the hash of the source files of modules; one that is gone counts as empty.

    >>> hash_of(["core.random"]) == hash_of(["core.random"]), hash_of(["core.random"]) == hash_of(["core.no_such"])
    (True, False)
    """
    digest = hashlib.sha256()
    for name in sorted(modules):
        digest.update(f"{name}\n".encode())
        digest.update(_source(name))
    return digest.hexdigest()[:16]


def sources() -> dict[str, str]:
    """Return the imported modules, separated by spaces, and the hash of their files."""
    modules = imported_modules()
    return {"hash": hash_of(modules), "modules": " ".join(modules)}


def _source(name: str) -> bytes:
    try:
        spec = find_spec(f"turnout.{name}")
    except ModuleNotFoundError:  # of a package around it
        spec = None
    return Path(spec.origin).read_bytes() if spec is not None and spec.origin else b""
