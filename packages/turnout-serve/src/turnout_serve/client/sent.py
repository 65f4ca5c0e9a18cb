"""Log what a client sends, for the owner of its data: JSON lines that are on the disk before the request is sent."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.core.system import flush, sync
from turnout.core.types import State
from turnout.protocol.survey import FIRST_TASK, SURVEYS
from turnout_serve.client.calls import Call
from turnout_serve.client.computer import Computer
from turnout_serve.client.newcomer import Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state import ClientState
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import digest
from turnout_serve.wire.surveys import question_of

_START = b'{"time": "'
_COUNTS = ("num_examples", "num_steps")


class Unlogged(TurnoutError):
    """A line of the log cannot be written, so the request is not sent."""


class SentLog:
    """Log each request that carries information about a client before it is sent.

    Logged are enrollments, reports and messages of secure sums, answers to evaluations and queries, declined tasks, and
    leaves. Heartbeats, requests for work and downloads carry only the token of the client and are left out.

    The request of a line that a kill has cut off was never sent. The line is removed when the log is opened again, and
    written in full when the request is sent.

    Args:
        path: the file, which is appended to.
        computer: algorithm and compression of reports; None for a client that has no model yet.
        url: URL of the server.

    Raises:
        ConfigurationError: if a file cannot be written, is no such log, or another client writes to it.
    """

    def __init__(self, path: Path, computer: Computer | None, url: str) -> None:
        # Absolute, because functions for data may change the working directory.
        self._path, self._computer, self._url = path.absolute(), computer, url
        self._lock = FileLock(path.with_name(f".{path.name}.lock"))
        try:
            self._lock.acquire(timeout=0)
            lines, size = _read(path) if path.exists() else ([], 0)
            number = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
            self._file = FileIO(number, "r+b")
            self._file.truncate(size)
            sync(path.parent)
        except Timeout:
            raise ConfigurationError(f"--log: another client writes to {path}: give each a file of its own") from None
        except OSError as error:
            raise ConfigurationError(f"--log: {path} cannot be written ({error.strerror}): give another file") from None
        self._sent = {(line.get("path"), line.get("digest")) for line in lines}

    def close(self) -> None:
        """Close and unlock the file."""
        self._file.close()
        self._lock.release()

    def write(self, call: Call, client: Client | Newcomer) -> None:
        """Write the line of a request to the disk, if the request carries information.

        Args:
            call: the request.
            client: that sends it.

        Raises:
            Unlogged: if the line cannot be written; the request must not be sent.
        """
        content, facts = call.content[0], call.json or {}
        path = call.path.partition("?")[0]  # the query of a presigned link is a secret
        match (call.method, path.rpartition("/")[2]):
            case ("PUT", _) if content:  # to the server, or to an object store
                what = "report"
                facts = self._report(client.state) | {"offset": int(call.headers.get("upload-offset", 0))}
            case ("POST", "fail") if isinstance(client, Client):
                what, facts = "decline", _task(client.task) | {"reason": facts["reason"]}
            case ("POST", "enrol"):
                what, data = "enrollment", {"data": facts["data"]} if "data" in facts else {}
                facts = {"server": self._url, "name": facts.get("name"), "code": "code" in facts} | data
            case ("POST", "leave"):
                what, facts = "leave", {}
            case _:
                return
        entry: dict[str, Any] = {"what": what, "path": path, "bytes": len(content), "digest": digest(content), **facts}
        name = path, entry["digest"]
        self._append(
            {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry, "again": name in self._sent}
        )
        self._sent.add(name)

    def _append(self, entry: dict[str, Any]) -> None:
        """Write a line to the disk, or leave the file unchanged."""
        line, opened = memoryview(json.dumps(entry).encode() + b"\n"), os.fstat(self._file.fileno())
        try:
            if not os.path.samestat(self._path.stat(), opened):  # moved away, or replaced
                raise OSError(None, "another file is in its place")
            while line:
                line = line[self._file.write(line) :]
            flush(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(opened.st_size)
            raise Unlogged(
                f"{self._path} cannot be written ({error.strerror}), so the {entry['what']} was not sent: free some space, "
                "or start the client again if the file was moved"
            ) from None

    def _report(self, state: ClientState) -> dict[str, Any]:
        """Describe the pending report of a client: its task, and its content."""
        pending, client, computer = state.pending, state.client, self._computer
        assert pending is not None
        assert client is not None
        assert computer is not None
        task, tensors = pending.task, load(pending.body)
        entry = _task(task) | {"digest": pending.digest}
        if task.task >= FIRST_TASK or task.phase in SURVEYS:
            return entry | _of_survey(task, tensors)
        if computer.coding is not None and any(name.startswith("code.") for name in tensors):
            tensors = computer.coding.decoded(tensors, client, task.version + (task.repeat << 40))[0]
        return entry | _of_update(tensors, computer.experiment.algorithm)


def _task(task: Assignment | None) -> dict[str, Any]:
    """Describe a task."""
    return {} if task is None else {"task": task.task, "phase": task.phase, "version": task.version}


def _of_update(tensors: State, algorithm: Algorithm) -> dict[str, Any]:
    """Describe a report by the norm of its update, and the names of its other content."""
    masked = "masked" in tensors
    scalars = [name for name, value in tensors.items() if name.startswith("seen.") and value.numel() == 1]
    counts = [name for name in _COUNTS if name in tensors]
    return {
        "norm": _norm(tensors.get("delta")),
        "examples": _examples(tensors),
        "scalars": sorted(name.removeprefix("seen.") for name in (*scalars, *counts)),
        "tensors": sorted(tensors.keys() - {*scalars, *counts}),
        "guards": [type(guard).__name__ for guard in algorithm.guard],
        "masked": masked,
        "noised": masked and bool(getattr(algorithm.aggregation, "noise_shares", None)),
    }


def _of_survey(task: Assignment, tensors: State) -> dict[str, Any]:
    """Describe a message in an evaluation or query."""
    # A later phase of a masked answer is named like one of a masked update, and has the question in its task.
    question = question_of(task) if "question" in task.told else None
    entry = {"what": "evaluation" if question is None else "query", "examples": _examples(tensors)}
    entry |= {"tensors": sorted(tensors), "masked": "masked" in tensors}
    return entry if question is None else entry | {"question": f"{question.kind} of {question.of}"}


def _norm(update: torch.Tensor | None) -> float | str | None:
    """Return the norm of an update; as text where it is NaN or infinite, which JSON cannot represent."""
    if update is None:
        return None
    norm = torch.linalg.vector_norm(update, dtype=torch.float64).item()
    return norm if math.isfinite(norm) else str(norm)


def _examples(tensors: State) -> int | None:
    """Return the number of examples that a message states."""
    return int(tensors["num_examples"][0]) if "num_examples" in tensors else None


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, without one that a kill has cut off at the end.

    Raises:
        ConfigurationError: if a file cannot be read or is no such log.
    """
    try:
        return _read(path)[0]
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}): give the file of join --log") from None


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of a log, and their size in bytes."""
    if not path.is_file() and path.exists():
        raise ConfigurationError(f"{path} is no file: give one to join --log")
    content, lines = path.read_bytes(), list[dict[str, Any]]()
    whole, _, cut = content.rpartition(b"\n")
    for number, text in enumerate(whole.split(b"\n") if whole else (), 1):
        line = _line(text)
        if not isinstance(line.get("what"), str) or type(line.get("bytes")) is not int:
            raise ConfigurationError(f"{path}, line {number}: no line of join --log: give another file")
        lines.append(line)
    cut = cut.rstrip(b"\0")  # after a power failure, a file may end with zeros
    if not (cut.startswith(_START) or _START.startswith(cut)):
        raise ConfigurationError(f"{path}, line {len(lines) + 1}: no line of join --log: give another file")
    return lines, len(whole) + bool(whole)


def _line(text: bytes) -> dict[str, Any]:
    """Read a line of a log; a line of another file is empty."""
    try:
        return json.loads(text) if text.startswith(_START) else {}
    except (ValueError, RecursionError):
        return {}
