"""Files are on the disk before they are moved, and what a killed client has left half written is cleared."""

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from turnout.core.checks import CheckpointError
from turnout.record import contents
from turnout_serve.client import state_folder as states
from turnout_serve.client.state import Pending
from turnout_serve.client.state_folder import StateFolder
from turnout_serve.server.run.noise import Releases
from turnout_serve.server.store import files
from turnout_serve.server.store.store import Store
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import encode

TASK = Assignment(1, 0, "train", 0, "0" * 64, 10, 1.0)
REPORT = Pending(TASK, b"report", {"w": torch.ones(1, 3)})
FILES = {"report.safetensors", "memory.safetensors", "task.json"}


@pytest.fixture
def operations(monkeypatch):
    """What is brought to the disk and what is moved, in order."""
    done = []
    for module in (files, states):
        monkeypatch.setattr(module, "sync", lambda path: done.append(("sync", path)))
        monkeypatch.setattr(module, "move", lambda a, b: (done.append(("move", a, b)), os.replace(a, b)))
    return done


def test_server_syncs_files_before_and_folders_after_moving(folder, operations):
    store = Store(folder)
    tensors = {"params": torch.arange(5.0), "shared.c": torch.ones(3, dtype=torch.float64)}
    digest, size = store.files.write_model(tensors)
    path, part = store.files.model(digest), store.files.models / "next.part"
    assert path.read_bytes() == encode(tensors)
    assert (digest, size) == (hashlib.sha256(encode(tensors)).hexdigest(), len(encode(tensors)))
    assert operations == [("sync", part), ("move", part, path)]
    operations.clear()
    part, report = store.files.incoming / "1.part", store.files.report("b" * 64)
    part.write_bytes(b"report")
    store.commit([], [(part, "b" * 64)])
    assert operations == [("sync", part), ("move", part, report), ("sync", report.parent)]


def test_client_syncs_files_before_and_folders_after_moving(folder, operations):
    kept = StateFolder(folder / "state")
    operations.clear()
    kept.hold(REPORT)
    part, waiting = folder / "state/pending.part", folder / "state/pending"
    assert operations == [("sync", part), ("move", part, waiting), ("sync", folder / "state")]
    operations.clear()
    kept.settle(REPORT)
    memory = "memory.safetensors"
    assert operations == [("move", waiting / memory, folder / "state" / memory), ("sync", folder / "state")]


def test_parts_left_by_a_killed_client_are_deleted(folder):
    """Left are a report that was half written, and one that was answered but not deleted."""
    kept = StateFolder(folder / "state")
    kept.hold(REPORT)
    os.replace(folder / "state/pending/memory.safetensors", folder / "state/memory.safetensors")
    (folder / "state/pending.part").mkdir()
    (folder / "state/pending.part/half").write_bytes(b"x")
    kept.close()
    again = StateFolder(folder / "state")
    assert again.pending is None
    assert again.memory is not None
    assert not (folder / "state/pending").exists()
    again.hold(REPORT)
    assert {path.name for path in (folder / "state/pending").iterdir()} == FILES
    assert not (folder / "state/pending.part").exists()


def test_state_folder_is_independent_of_the_working_directory(folder, monkeypatch):
    for name in ("here", "there"):
        (folder / name).mkdir()
    monkeypatch.chdir(folder / "here")
    kept = StateFolder(Path("state"))
    monkeypatch.chdir(folder / "there")
    kept.hold(REPORT)
    kept.close()
    assert not any((folder / "there").iterdir())
    assert StateFolder(folder / "here/state").pending is not None


def test_pending_report_replaces_an_earlier_one(folder):
    kept = StateFolder(folder / "state")
    kept.hold(REPORT)
    (folder / "state/pending/left").write_bytes(b"x")
    kept.hold(REPORT)
    assert {path.name for path in (folder / "state/pending").iterdir()} == FILES


def until_full(original, left):
    """A function that writes as long as there is room."""

    def write(*arguments):
        if not left[0]:
            raise OSError(28, "No space left on device")
        left[0] -= 1
        original(*arguments)

    return write


@pytest.mark.parametrize("method", ["enrolled", "hold", "settle", "drop"])
@pytest.mark.parametrize("at", range(7))
def test_full_disk_leaves_client_state_before_or_after_the_write(folder, monkeypatch, method, at):
    """The disk is full at each write of each method; a later start has the state before the write, or that after it."""
    kept = StateFolder(folder / "state")
    kept.enrolled(3, "run")
    if method in ("settle", "drop"):
        kept.hold(REPORT)
    (folder / "state/pending.part").mkdir()  # of a process that was killed
    (folder / "state/pending.part/half").write_bytes(b"x")
    before, left = {"client": 3, "pending": kept.pending is not None, "memory": None}, [at]
    for name in ("move", "_write", "sync"):
        monkeypatch.setattr(states, name, until_full(getattr(states, name), left))
    arguments = {"enrolled": (4, "run"), "hold": (REPORT,), "settle": (REPORT,)}.get(method, ())
    with suppress(CheckpointError):
        getattr(kept, method)(*arguments)
    monkeypatch.undo()
    kept.close()
    again = StateFolder(folder / "state")
    now = {"client": again.client, "pending": again.pending is not None, "memory": again.memory and [*again.memory]}
    behind = {"enrolled": {"client": 4}, "hold": {"pending": True}, "settle": {"pending": False, "memory": ["w"]}}
    assert now in (before, before | behind.get(method, {"pending": False}))
    again.hold(REPORT)
    again.drop()


def test_unreadable_files_are_not_called_damaged(folder, monkeypatch):
    """To delete them, as messages about damaged ones suggest, costs the client its memory, and the server its budget."""
    state = StateFolder(folder / "client")
    state.enrolled(3, "run")
    state.close()
    (folder / "releases.json").write_text("{}")

    def failing(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "read_bytes", failing)
    monkeypatch.setattr(contents, "open_regular", failing)
    for read in (lambda: StateFolder(folder / "client"), lambda: Releases(folder, "run")):
        with pytest.raises(CheckpointError, match=r"cannot be read \(Input/output error\): check the disk"):
            read()
