"""What clients remember between their rounds, in one table that has a row for whoever took part so far."""

from __future__ import annotations

import numpy as np
import torch

from turnout.core.types import State


class ClientMemory:
    """Named tensors with one row a client, allocated when a client first takes part; everything starts at zero.

    Args:
        num_clients: N; costs 4 bytes each until they take part.
        fields: shape and type of a row, by name.
    """

    def __init__(self, num_clients: int, fields: dict[str, tuple[tuple[int, ...], torch.dtype]]) -> None:
        self._row = np.full(num_clients if fields else 0, -1, dtype=np.int32)
        self._used = 0
        self._tables = {name: torch.zeros((0, *shape), dtype=dtype) for name, (shape, dtype) in fields.items()}

    def gather(self, clients: np.ndarray) -> State:
        """Copies of the rows of `clients`, ``[B, ...]``; zeros for those who have none yet, and get none by this."""
        if not self._tables:
            return {}
        rows = torch.from_numpy(self._row[clients].astype(np.int64))
        known = rows >= 0
        gathered = {name: table.new_zeros((len(clients), *table.shape[1:])) for name, table in self._tables.items()}
        for name, table in self._tables.items():
            gathered[name][known] = table[rows[known]]
        return gathered

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
        for name, table in self._tables.items():
            if len(table) < rows:
                grown = torch.zeros((max(rows, 2 * len(table)), *table.shape[1:]), dtype=table.dtype)
                grown[: len(table)] = table
                self._tables[name] = grown

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
        self._tables = {name: state[f"table.{name}"] for name in self._tables}
