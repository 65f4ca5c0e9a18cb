"""Store the state of a client in a folder, which survives the process."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from turnout.base.algorithm import Algorithm
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.core.system import flush, move, sync
from turnout.core.types import State
from turnout.record import contents, lock
from turnout.record.describe import describe, differences
from turnout.record.storage import json_writer, read_json, replace_files
from turnout_serve.client.state import ClientState, Pending
from turnout_serve.client.sum_history import SumHistory
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import encode


class Identity(contents.Contents):
    """Contents of ``identity.json``: what authenticates a client, and its number and its run once it is enrolled."""

    token: str
    client: contents.Whole | None
    run: str | None


_LAST = "last task"  # beside the memory in its file, so that both change at once


class StateFolder(ClientState):
    """State of a client in a folder, which survives the process; every change is on the disk before it takes effect.

    The pending report has a folder of its own, which appears by one atomic move. When the server has taken the report, its
    memory becomes that of the client by another one; a pending report without memory was answered.

    Args:
        folder: its path; it is made if it does not exist.

    Attributes:
        folder: its absolute path.
        close: function that unlocks it.

    Raises:
        CheckpointError: if another process uses the folder, or it is damaged; by all methods if the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder = folder.absolute()  # functions for data may change the working directory
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be used: {error}. Give another --state") from None
        held = ExitStack()
        held.enter_context(lock.locked(folder))
        self.close = held.close
        self._identity, self._memory = folder / "identity.json", folder / "memory.safetensors"
        self._waiting, self._sums = folder / "pending", folder / "sums.jsonl"
        if self._identity.exists():
            self._read()
        else:
            self.sums = SumHistory(self._add_sum)
            self._write_identity()

    def _write_identity(self) -> None:
        """Store who the client is."""
        with contents.writable([self.folder]):
            part = self._identity.with_suffix(".part")
            _write(part, json.dumps({"token": self.token, "client": self.client, "run": self.run}).encode())
            move(part, self._identity)
            sync(self.folder)

    def enrolled(self, client: int, run: str) -> None:
        """Store the number of the client, and the name of the run."""
        super().enrolled(client, run)
        self._write_identity()

    def hold(self, pending: Pending) -> None:
        """Store a report, and the memory once it is taken."""
        last = {} if (task := self.last_after(pending)) is None else {_LAST: torch.tensor(task)}
        with contents.writable([self.folder]):
            part = self.folder / "pending.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _write(part / "report.safetensors", pending.body)
            _write(part / "memory.safetensors", encode(pending.memory | last))
            _write(part / "task.json", json.dumps(pending.task.json()).encode())
            sync(part)
            shutil.rmtree(self._waiting, ignore_errors=True)
            move(part, self._waiting)
            sync(self.folder)
        super().hold(pending)

    def settle(self, pending: Pending) -> None:
        """Take over the memory of the pending report."""
        with contents.writable([self.folder]):
            # This move is the point of no return. If the process dies before it, the client sends the report again, and the
            # server answers that it was taken; after it, the next start deletes the pending folder without memory.
            move(self._waiting / "memory.safetensors", self._memory)
            sync(self.folder)
            shutil.rmtree(self._waiting, ignore_errors=True)
        super().settle(pending)

    def drop(self) -> None:
        """Delete the pending report."""
        with contents.writable([self.folder]):
            shutil.rmtree(self.folder / "pending.part", ignore_errors=True)  # left by a process that was killed
            move(self._waiting, self.folder / "pending.part")  # one atomic move, so that no part of a report is left
            sync(self.folder)
            shutil.rmtree(self.folder / "pending.part", ignore_errors=True)
        super().drop()

    def forget(self) -> None:
        """Delete the memory and the pending report."""
        with contents.writable([self.folder]):
            if self._waiting.exists():
                self.drop()
            self._memory.unlink(missing_ok=True)
            sync(self.folder)
        super().forget()

    def check_algorithm(self, algorithm: Algorithm) -> None:
        """Compare the algorithm that a server announces with that at the client's first start, which the folder holds.

        A server could otherwise announce a run again without its differential privacy or its secure sum, to clients that
        restart.

        Raises:
            ConfigurationError: if it is another algorithm, with the differences.
            CheckpointError: if the file is damaged, or the disk is full.
        """
        file, announced = self.folder / "algorithm.json", describe(algorithm)
        if not file.exists():
            with contents.writable([self.folder]):
                replace_files({file: json_writer(announced)}, private=True)
        elif different := list(differences(read_json(file, "delete it to accept that of the server"), announced)):
            raise ConfigurationError(
                f"the server announces another algorithm than when this client joined the run (then, and now): "
                f"{'; '.join(different[:5])}. Stay away, or delete {file} to accept it"
            )

    def _add_sum(self, line: bytes) -> None:
        """Append a line about a sum."""
        with contents.writable([self.folder]):
            with open(os.open(self._sums, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
                end = file.read().rfind(b"\n") + 1  # what follows the last line was cut off by a kill, and never sent
                file.seek(end)
                file.truncate()
                file.write(line)
                file.flush()
                flush(file.fileno())
            sync(self.folder)

    def _read(self) -> None:
        """Take over the state that an earlier process has stored.

        Raises:
            CheckpointError: if it is damaged, or cannot be read.
        """
        try:
            identity = contents.check(self._identity, Identity, contents.parse(self._identity.read_bytes()))
            self.token, self.client, self.run = identity.token, identity.client, identity.run
            if self._memory.exists():
                self.memory, self.last = _stored(self._memory)
            lines = self._sums.read_bytes().split(b"\n")[:-1] if self._sums.exists() else ()
            self.pending, self.sums = self._report(), SumHistory(self._add_sum, lines)
        except OSError as error:
            raise contents.Unreadable.of(self.folder, error) from error
        except (ValueError, SafetensorError) as error:
            raise CheckpointError(
                f"{self.folder} is damaged ({error}): restore it from a copy, or give another --state to enroll anew"
            ) from error
        self.is_resumed = True

    def _report(self) -> Pending | None:
        """Return the pending report; delete what is left of one that was answered."""
        if not (self._waiting / "memory.safetensors").exists():
            shutil.rmtree(self._waiting, ignore_errors=True)
            return None
        task = Assignment.read(contents.parse((self._waiting / "task.json").read_bytes()))
        memory, _ = _stored(self._waiting / "memory.safetensors")
        return Pending(task, (self._waiting / "report.safetensors").read_bytes(), memory)


def _stored(path: Path) -> tuple[State, int | None]:
    """Read a memory, and the number of the last task of the training beside it."""
    memory = load(path.read_bytes())
    last = memory.pop(_LAST, None)
    return memory, None if last is None else int(last)


def _write(path: Path, body: bytes) -> None:
    """Write a file to the disk, readable for its owner only."""
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(body)
        file.flush()
        flush(file.fileno())
