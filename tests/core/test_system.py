"""Runs, comparisons, servers and clients on a system with the file semantics and omissions of Windows."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import shutil
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.served import World

import turnout as to
from turnout.core import signals, system
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.core.device import check_device
from turnout.data.federated import FederatedData
from turnout.engine.hardware import num_processors
from turnout.record import lock, storage
from turnout.record.client_memory import ClientMemory
from turnout.workbench.speed import process

from ..tiny import classification


def _refuse_open(*paths: Any) -> None:
    """Refuse files that this process has open."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # it was the listing's own
            continue
    for path in paths:
        if str(Path(path).resolve()) in links:
            raise PermissionError(errno.EACCES, "it is open", str(path))


def _take_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove functions that Windows lacks."""
    for name in (
        "O_DIRECTORY",
        "sysconf",
        "sysconf_names",
        "sched_getaffinity",
        "posix_fallocate",
        "getloadavg",
        "fork",
    ):
        monkeypatch.delattr(os, name)
    for name in ("SIGHUP", "pthread_sigmask", "SIGKILL", "SIG_BLOCK", "SIG_SETMASK"):
        monkeypatch.delattr(signal, name)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are open are neither replaced nor deleted, folders are not opened, and read-only files not flushed."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("what is open is read from /proc, which Linux has")
    fsync, opened, replace, unlink = os.fsync, os.open, os.replace, os.unlink

    def windows_fsync(number: int) -> None:
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        fsync(number)

    def windows_open(path: Any, *arguments: Any, **options: Any) -> int:
        if isinstance(path, str | os.PathLike) and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    def windows_replace(part: Any, path: Any, **options: Any) -> None:
        _refuse_open(part, path)
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Access is denied", str(path))
        replace(part, path, **options)

    def windows_unlink(path: Any, **options: Any) -> None:
        if not options.get("dir_fd"):
            _refuse_open(path)
        unlink(path, **options)

    for name, function in (
        ("fsync", windows_fsync),
        ("open", windows_open),
        ("replace", windows_replace),
        ("rename", windows_replace),
        ("unlink", windows_unlink),
    ):
        monkeypatch.setattr(os, name, function)
    _take_away(monkeypatch)
    monkeypatch.setattr(shutil, "_use_fd_functions", False)  # which opens folders, where a system can
    monkeypatch.setattr(signals, "HANGUP", None)
    monkeypatch.setattr(process, "_PROC", Path("/nowhere"))
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(system, "WINDOWS", True)
    monkeypatch.setattr(system, "_PATIENCE", 0.1)


def experiment(data: FederatedData | None = None, **options: Any) -> to.Experiment:
    return to.Experiment(
        data=data or classification(), model=to.models.Logistic(), **{"rounds": 4, "evaluate_every": 1, **options}
    )


def _seeded(name: str, seed: int) -> to.Experiment:
    return experiment(algorithm=to.ALGORITHMS[name](), seed=seed)


@pytest.mark.usefixtures("windows")
def test_run_is_saved_resumed_and_loaded(tmp_path: Path) -> None:
    run = experiment(algorithm=to.scaffold(cohort_size=3))
    stopped = run.run(tmp_path / "half", checkpoint_every=1, callbacks=[to.EarlyStopping(patience=1)])
    result = run.run(tmp_path / "whole", checkpoint_every=1)
    assert to.load(tmp_path / "whole").rounds.equals(result.rounds)
    assert len(to.load(tmp_path / "half").rounds) == len(stopped.rounds)
    again = run.run(tmp_path / "whole", resume=True)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), result.model.parameters(), strict=True))
    assert b"\r" not in (tmp_path / "whole" / storage.DIGESTS).read_bytes()


@pytest.mark.usefixtures("windows")
def test_comparison_runs_and_is_read(tmp_path: Path) -> None:
    runs = {name: partial(_seeded, name) for name in ("fedavg", "fedau")}
    compared, again = (to.compare(runs, seeds=2, folder=tmp_path, jobs=1) for _ in range(2))
    assert str(compared) == str(again)
    assert num_processors() >= 1
    assert math.isnan(process.peak())
    assert process.Usage.now().machine is None
    assert process.age() >= 0


@pytest.mark.usefixtures("windows")
def test_server_and_clients_persist_their_state(tmp_path: Path) -> None:
    world = World(experiment(rounds=2), tmp_path / "server", homes=tmp_path)
    try:
        assert world.run().host.driver.params.isfinite().all()
    finally:
        world.close()


@pytest.mark.usefixtures("windows")
def test_client_memory_is_in_a_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Path] = []
    monkeypatch.setattr(system.atexit, "register", lambda _, path: left.append(path))
    memory = ClientMemory(50, {"row": torch.zeros(100)}, budget=1000)
    memory.scatter(np.arange(20), {"row": torch.ones(20, 100)})
    assert memory.gather(np.array([3]))["row"].sum() == 100
    assert len(left) == 1
    assert left[0].exists()
    del memory
    system._remove(left[0])
    assert not left[0].exists()


def test_open_file_is_replaced_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries, replace = [], os.replace

    def busy(part: Path, path: Path) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise PermissionError("it is open")
        replace(part, path)

    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "part").write_text("new")
    (tmp_path / "file").write_text("old")
    with pytest.raises(PermissionError):
        system.move(tmp_path / "part", tmp_path / "file")
    monkeypatch.setattr(system, "WINDOWS", True)
    system.move(tmp_path / "part", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "new"
    monkeypatch.setattr(system, "_PATIENCE", 0.0)
    tries.clear()
    (tmp_path / "part").write_text("new")
    with pytest.raises(PermissionError):
        system.move(tmp_path / "part", tmp_path / "file")


_HOLDER = """
import sys
from pathlib import Path
from turnout.record import lock
with lock.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.usefixtures("windows")
def test_lock_of_another_process_is_seen_and_nothing_is_changed(tmp_path: Path) -> None:
    """The attack: a lock that is asked for where it cannot be shared, in a folder with files of a killed process."""
    (tmp_path / ".tmp-left").touch()
    assert not lock.in_use(tmp_path)
    (tmp_path / ".lock").touch()
    assert not lock.in_use(tmp_path)
    assert (tmp_path / ".tmp-left").exists()
    with subprocess.Popen(  # it ends with its input
        [sys.executable, "-c", _HOLDER, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        assert lock.in_use(tmp_path)
        with pytest.raises(lock.InUse), lock.locked(tmp_path):
            pass
    assert not lock.in_use(tmp_path)
    with lock.locked(tmp_path):
        assert not lock.in_use(tmp_path)  # by another process
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").symlink_to("/dev/zero")
    assert not lock.in_use(tmp_path)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.EIO])
def test_file_system_that_cannot_flush_folders_is_used(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: a share of a virtual machine's host, on which no run could be saved. Other errors are reported."""
    fsync = os.fsync

    def flushed(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(number)

    monkeypatch.setattr(os, "fsync", flushed)
    if code == errno.EIO:
        with pytest.raises(CheckpointError, match=r"cannot write .*Input/output error"):
            experiment().run(tmp_path)
        return
    result = experiment().run(tmp_path, checkpoint_every=1)
    assert to.load(tmp_path).rounds.equals(result.rounds)


def test_unknown_limits_are_unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1e8 < system.memory_bytes() < math.inf
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert system.memory_bytes() == math.inf
    assert system.allowed_processors() == os.cpu_count()


def test_mps_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match="device 'mps:0' cannot be used here: it lacks float64"):
        check_device("mps:0")
