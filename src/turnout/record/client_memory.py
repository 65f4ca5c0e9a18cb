"""Store what clients remember between rounds, in a table with a row for each client that has participated."""

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
    """Named tensors with one row for each client, allocated at its first participation and initialized with `first`.

    Rows are in host memory. If they exceed the budget, they move to an unnamed file in the folder for temporary files
    (``TMPDIR``), which is deleted when the process ends and grows with the rows in use.

    Args:
        num_clients: N; a client takes 4 bytes until it participates.
        first: the initial row of each tensor.
        budget: size of all rows in bytes above which they are in a file.

    Attributes:
        first: the initial row of each tensor.

    Raises:
        CheckpointError: if the file cannot grow, e.g. on a full disk.

    Example:
        >>> memory = ClientMemory(1000, {"control": torch.zeros(2)})
        >>> memory.scatter(np.array([7]), {"control": torch.tensor([[1.0, 2.0]])})
        >>> memory.gather(np.array([3, 7]))["control"].tolist()
        [[0.0, 0.0], [1.0, 2.0]]
    """

    def __init__(self, num_clients: int, first: State, budget: int = 1 << 30) -> None:
        self._row = np.full(num_clients if first else 0, -1, dtype=np.int32)  # of each client; -1 is none
        self._used = self._capacity = 0
        self.first, self._budget = {name: row.detach().clone() for name, row in first.items()}, budget
        self._tables = {name: row.new_zeros((0, *row.shape)) for name, row in self.first.items()}
        self._files: dict[str, int] = {}

    def gather(self, clients: np.ndarray) -> State:
        """Return copies of the rows of clients, ``[B, ...]``; for clients without rows, initial ones that are not stored."""
        rows = self._row[clients] if self._tables else clients
        has_row = rows >= 0
        if self._tables and not has_row.all():
            stored, mask, gathered = self.gather(clients[has_row]), torch.from_numpy(has_row), {}
            for name, row in self.first.items():
                gathered[name] = row.expand(len(clients), *row.shape).clone()
                gathered[name][mask] = stored[name]
            return gathered
        index = torch.from_numpy(rows.astype(np.int64))
        return {name: table[index] for name, table in self._tables.items()}

    def scatter(self, clients: np.ndarray, memory: State) -> None:
        """Store the rows of clients."""
        if not self._tables:
            return
        rows = torch.from_numpy(self._rows(clients))
        for name, table in self._tables.items():
            table[rows] = memory[name].to(table.device)

    def _rows(self, clients: np.ndarray) -> np.ndarray:
        """Return the indices of the rows of clients, and allocate rows for new ones."""
        new = np.unique(clients[self._row[clients] < 0])
        if len(new):
            self._row[new] = np.arange(self._used, self._used + len(new))
            self._used += len(new)
            self._reserve(self._used)
        return self._row[clients].astype(np.int64)

    def _reserve(self, rows: int) -> None:
        """Allocate capacity for rows, doubling it so that growth has constant amortized cost."""
        if rows <= self._capacity:
            return
        self._capacity = min(max(rows, 2 * self._capacity), len(self._row))
        in_file = self._capacity * sum(row.nbytes for row in self.first.values()) > self._budget
        for name, table in self._tables.items():
            self._tables[name] = self._in_file(name) if in_file else _grown(table, self._capacity)

    def _in_file(self, name: str) -> torch.Tensor:
        """Return a table that is mapped to a file of the present capacity.

        The mapping has addresses for all N clients, which take no space until they are used.
        """
        row, table = self.first[name], self._tables[name]
        if row.nbytes == 0:
            return _grown(table, self._capacity)
        try:
            mapped = table
            if name not in self._files:
                self._files[name], mapped = _file(row, len(self._row))
            # Reserve the space now, where the system can: on a full disk, writing to the mapping would kill the process.
            allocate: Any = getattr(os, "posix_fallocate", lambda *_: None)
            allocate(self._files[name], 0, self._capacity * row.nbytes)
        except OSError as error:
            raise CheckpointError(
                f"what clients remember ({name}) outgrew the memory budget, and a file of {self._capacity * row.nbytes:,} "
                f"bytes in {tempfile.gettempdir()} cannot be allocated: {error}. Set TMPDIR to a larger disk, or raise "
                "memory_budget"
            ) from error
        if mapped is not table:
            mapped[: len(table)] = table
        return mapped

    def state(self) -> State:
        """Return ``clients [R]``, in the order of their rows, and the tables ``[R, ...]``."""
        if not self._tables:
            return {}
        clients = np.empty(self._used, dtype=np.int64)
        with_row = np.flatnonzero(self._row >= 0)
        clients[self._row[with_row]] = with_row
        tables = {f"table.{name}": table[: self._used].contiguous() for name, table in self._tables.items()}
        return {"clients": torch.from_numpy(clients)} | tables

    def restore(self, state: State) -> None:
        """Restore what `state` returned.

        Raises:
            KeyError, ValueError: if tensors are missing or do not fit, as in a damaged file.
        """
        if not self._tables:
            return
        clients = self._checked(state)
        self._row[:] = -1
        self._row[clients] = np.arange(len(clients))
        self._used = len(clients)
        self._reserve(self._used)
        for name, table in self._tables.items():
            table[: self._used] = state[f"table.{name}"]

    def _checked(self, state: State) -> np.ndarray:
        """Return the clients of a saved state whose tables fit; see `restore` for the errors."""
        clients = state["clients"].numpy()
        if clients.dtype != np.int64 or clients.ndim != 1 or len(np.unique(clients)) < len(clients):
            raise ValueError(f"clients: needed different whole numbers [R], got {clients.dtype} {list(clients.shape)}")
        if len(clients) and not 0 <= clients.min() <= clients.max() < len(self._row):
            raise ValueError(
                f"clients: needed numbers from 0 to {len(self._row) - 1}, got {clients.min()} and {clients.max()}"
            )
        for name, row in self.first.items():
            table, shape = state[f"table.{name}"], (len(clients), *row.shape)
            if table.shape != shape or table.dtype != row.dtype:
                raise ValueError(
                    f"table.{name}: needed {row.dtype} {list(shape)}, got {table.dtype} {list(table.shape)}"
                )
            # A step that leads to such numbers changes no memory.
            if row.isfinite().all() and not table.isfinite().all():
                raise ValueError(f"table.{name}: got NaN or infinity, needed finite numbers")
        return clients

    def __del__(self) -> None:
        for file in getattr(self, "_files", {}).values():
            with suppress(OSError):
                os.close(file)


def _grown(table: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a copy of the table with more rows."""
    grown = table.new_empty((rows, *table.shape[1:]))  # rows are written before they are read
    grown[: len(table)] = table
    return grown


def _file(row: torch.Tensor, num_rows: int) -> tuple[int, torch.Tensor]:
    """Return a new unnamed file, and a table that is mapped to it."""
    file, path = tempfile.mkstemp(prefix="turnout-")
    try:
        mapped = torch.from_file(path, shared=True, size=num_rows * row.numel(), dtype=row.dtype)
    finally:
        remove_once_closed(Path(path))
    return file, mapped.view(num_rows, *row.shape)
