"""What clients remember between their rounds, in one table that has a row for whoever took part so far."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.core.checks import CheckpointError
from turnout.core.system import remove_once_closed
from turnout.core.types import State


class ClientMemory:
    """Named tensors with one row a client, allocated when a client first takes part; every row begins as `first`.

    Rows are in memory on the host. Where they would take more than the budget, they go to a file that has no name and
    ends with the process, in the folder for temporary files (``TMPDIR``); it grows with the rows that are in use.

    Args:
        num_clients: N; costs 4 bytes each until they take part.
        first: what a client remembers before it first takes part: one row by name.
        budget: bytes of all rows beyond which they are in a file.

    Raises:
        CheckpointError: where the file cannot grow, e.g. on a full disk.
    """

    def __init__(self, num_clients: int, first: State, budget: int = 1 << 30) -> None:
        self._row = np.full(num_clients if first else 0, -1, dtype=np.int32)
        self._used = self._room = 0
        self._first, self._budget = {name: row.detach().clone() for name, row in first.items()}, budget
        self._tables = {name: row.new_zeros((0, *row.shape)) for name, row in self._first.items()}
        self._files: dict[str, int] = {}

    @property
    def first(self) -> State:
        """What a client remembers before it first takes part, by name."""
        return self._first

    def gather(self, clients: np.ndarray) -> State:
        """Copy the rows of `clients`, ``[B, ...]``; first rows for those who have none yet, and get none by this."""
        rows = self._row[clients] if self._tables else clients
        known = rows >= 0
        if self._tables and not known.all():
            found = self.gather(clients[known])
            place, fresh = torch.from_numpy(known), {}
            for name, row in self._first.items():
                fresh[name] = row.expand(len(clients), *row.shape).clone()
                fresh[name][place] = found[name]
            return fresh
        index = torch.from_numpy(rows.astype(np.int64))
        return {name: table[index] for name, table in self._tables.items()}

    def scatter(self, clients: np.ndarray, memory: State) -> None:
        """Store the rows of `clients`."""
        if not self._tables:
            return
        rows = torch.from_numpy(self._rows(clients))
        for name, table in self._tables.items():
            table[rows] = memory[name].to(table.device)

    def _rows(self, clients: np.ndarray) -> np.ndarray:
        """Where the clients' rows are; new clients get one."""
        new = np.unique(clients[self._row[clients] < 0])
        if len(new):
            self._row[new] = np.arange(self._used, self._used + len(new))
            self._used += len(new)
            self._reserve(self._used)
        return self._row[clients].astype(np.int64)

    def _reserve(self, rows: int) -> None:
        """Make room, doubling so that growth costs a constant per client."""
        if rows <= self._room:
            return
        self._room = min(max(rows, 2 * self._room), len(self._row))
        in_file = self._room * sum(row.nbytes for row in self._first.values()) > self._budget
        for name, table in self._tables.items():
            self._tables[name] = self._filed(name) if in_file else _grown(table, self._room)

    def _filed(self, name: str) -> torch.Tensor:
        """Return the table as a file that has room; an address for every client there is costs nothing until it is used."""
        row, table = self._first[name], self._tables[name]
        if row.nbytes == 0:
            return _grown(table, self._room)
        try:
            mapped = table
            if name not in self._files:
                self._files[name], mapped = _file(row, len(self._row))
            # Where a system can; or a full disk would show in the middle of a round, as a dead process.
            allocate: Any = getattr(os, "posix_fallocate", lambda *_: None)
            allocate(self._files[name], 0, self._room * row.nbytes)
        except OSError as error:
            raise CheckpointError(
                f"what clients remember ({name}) outgrew the memory budget, and a file of {self._room * row.nbytes:,} bytes "
                f"in {tempfile.gettempdir()} is not to be had: {error}. Set TMPDIR to a larger disk, or raise memory_budget"
            ) from error
        if mapped is not table:
            mapped[: len(table)] = table
        return mapped

    def state(self) -> State:
        """All that is remembered: ``clients [R]`` in the order of their rows, and the tables ``[R, ...]``."""
        if not self._tables:
            return {}
        clients = np.empty(self._used, dtype=np.int64)
        taken = np.flatnonzero(self._row >= 0)
        clients[self._row[taken]] = taken
        tables = {f"table.{name}": table[: self._used].contiguous() for name, table in self._tables.items()}
        return {"clients": torch.from_numpy(clients)} | tables

    def restore(self, state: State) -> None:
        """Take over what `state` returned."""
        if not self._tables:
            return
        clients = state["clients"].numpy()
        self._row[:] = -1
        self._row[clients] = np.arange(len(clients))
        self._used = len(clients)
        self._reserve(self._used)
        for name, table in self._tables.items():
            table[: self._used] = state[f"table.{name}"]

    def __del__(self) -> None:
        for file in getattr(self, "_files", {}).values():
            with suppress(OSError):
                os.close(file)


def _grown(table: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the table with room for so many rows."""
    grown = table.new_empty((rows, *table.shape[1:]))  # whoever gets a row writes it first
    grown[: len(table)] = table
    return grown


def _file(row: torch.Tensor, num_rows: int) -> tuple[int, torch.Tensor]:
    """Return a new file without a name, and a table of so many rows that is mapped to it."""
    file, path = tempfile.mkstemp(prefix="turnout-")
    try:
        mapped = torch.from_file(path, shared=True, size=num_rows * row.numel(), dtype=row.dtype)
    finally:
        remove_once_closed(Path(path))
    return file, mapped.view(num_rows, *row.shape)
