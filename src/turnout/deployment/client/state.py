"""State of a client: its identity, its memory between tasks, and the report that is not yet taken."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec

from safetensors import SafetensorError
from safetensors.torch import load

from turnout.core.checks import CheckpointError
from turnout.core.system import flush, move, sync
from turnout.core.types import State
from turnout.deployment.wire.assignment import Assignment
from turnout.deployment.wire.format import digest, encode
from turnout.record import contents, lock

Arguments = ParamSpec("Arguments")


class _Identity(contents.Contents):
    """Contents of ``identity.json``."""

    token: str
    client: contents.Whole | None
    run: str | None


@dataclass(frozen=True)
class Pending:
    """A report that the server has not yet answered.

    Attributes:
        task: of the report.
        body: bytes of the report.
        memory: of the client once the report is taken.
    """

    task: Assignment
    body: bytes
    memory: State

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, which names the report."""
        return digest(self.body)


class ClientState:
    """State of a client that is lost when the process ends.

    Attributes:
        token: authenticates the client.
        client: number of the client; None before it is enrolled.
        run: name of the run; None before it is enrolled.
        memory: a row by name; None before the first task.
        pending: the report that is not yet taken.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self.client: int | None = None
        self.run: str | None = None
        self.memory: State | None = None
        self.pending: Pending | None = None

    def enrolled(self, client: int, run: str) -> None:
        """Store the number of the client, and the name of the run."""
        self.client, self.run = client, run

    def hold(self, pending: Pending) -> None:
        """Store a report until the server has answered it."""
        self.pending = pending

    def settle(self) -> None:
        """Take over the memory of the pending report, because the server has taken it."""
        assert self.pending is not None
        self.memory, self.pending = self.pending.memory, None

    def drop(self) -> None:
        """Delete the pending report, and keep the memory from before."""
        self.pending = None


def _writes(
    method: Callable[Concatenate[ClientFolder, Arguments], None],
) -> Callable[Concatenate[ClientFolder, Arguments], None]:
    """Decorate a method so that an error of the system, such as a full disk, is raised as one that names the folder."""

    @wraps(method)
    def named(self: ClientFolder, *arguments: Arguments.args, **options: Arguments.kwargs) -> None:
        with lock.writable([self.folder]):
            method(self, *arguments, **options)

    return named


class ClientFolder(ClientState):
    """State of a client in a folder, which survives the process; every change is on the disk before it takes effect.

    The pending report has a folder of its own, which appears by one atomic move. When the server has taken the report, its
    memory becomes that of the client by another one; a pending report without memory was answered.

    Raises:
        CheckpointError: for a folder that another process uses, or that is damaged; by all methods where the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder = folder.absolute()  # functions for data may change the working directory
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be used: {error}. Give another --state") from None
        self._lock = ExitStack()
        self._lock.enter_context(lock.locked(folder))
        self._identity, self._memory = folder / "identity.json", folder / "memory.safetensors"
        self._waiting = folder / "pending"
        if self._identity.exists():
            self._read()
        else:
            self._write_identity()

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.close()

    def enrolled(self, client: int, run: str) -> None:
        """Store the number of the client, and the name of the run."""
        super().enrolled(client, run)
        self._write_identity()

    @_writes
    def hold(self, pending: Pending) -> None:
        """Store a report until the server has answered it."""
        part = self.folder / "pending.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        _write(part / "report.safetensors", pending.body)
        _write(part / "memory.safetensors", encode(pending.memory))
        _write(part / "task.json", json.dumps(pending.task.json()).encode())
        sync(part)
        shutil.rmtree(self._waiting, ignore_errors=True)
        move(part, self._waiting)
        sync(self.folder)
        super().hold(pending)

    @_writes
    def settle(self) -> None:
        """Take over the memory of the pending report, because the server has taken it."""
        # This move is the point of no return. If the process dies before it, the client sends the report again, and the
        # server answers that it was taken; after it, the next start deletes the pending folder without memory.
        move(self._waiting / "memory.safetensors", self._memory)
        sync(self.folder)
        super().settle()
        shutil.rmtree(self._waiting)

    @_writes
    def drop(self) -> None:
        """Delete the pending report, and keep the memory from before."""
        shutil.rmtree(self.folder / "pending.part", ignore_errors=True)  # left by a process that was killed
        move(self._waiting, self.folder / "pending.part")  # one atomic move, so that no part of a report is left
        sync(self.folder)
        shutil.rmtree(self.folder / "pending.part")
        super().drop()

    def _read(self) -> None:
        """Read the state from the folder."""
        try:
            identity = contents.check(self._identity, _Identity, contents.parse(self._identity.read_bytes()))
            self.token, self.client, self.run = identity.token, identity.client, identity.run
            if self._memory.exists():
                self.memory = load(self._memory.read_bytes())
            if (self._waiting / "memory.safetensors").exists():
                task = Assignment.read(contents.parse((self._waiting / "task.json").read_bytes()))
                body = (self._waiting / "report.safetensors").read_bytes()
                self.pending = Pending(task, body, load((self._waiting / "memory.safetensors").read_bytes()))
            else:
                shutil.rmtree(self._waiting, ignore_errors=True)
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(
                f"{self.folder} is damaged ({error}): restore it from a copy, or give another --state to enrol anew"
            ) from error

    @_writes
    def _write_identity(self) -> None:
        part = self._identity.with_suffix(".part")
        facts = {"token": self.token, "client": self.client, "run": self.run}
        _write(part, json.dumps(facts).encode())
        move(part, self._identity)
        sync(self.folder)


def _write(path: Path, body: bytes) -> None:
    """Write a file to the disk, readable for its owner only."""
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(body)
        file.flush()
        flush(file.fileno())
