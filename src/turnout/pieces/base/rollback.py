"""Keep what a server step changes in place, so that it can be taken back: at the cost of its cohort, if pieces say so."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from turnout.core.device import to_device
from turnout.core.types import Report, ServerState
from turnout.pieces.base import Stateful
from turnout.pieces.base.algorithm import Algorithm


class Rollback:
    """Rows of the server's state, as they were before a step.

    Args:
        rows: of each: the tensor, the index of its rows (or ``...``), and what they hold.
    """

    def __init__(self, rows: list[tuple[torch.Tensor, Any, torch.Tensor]]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, algorithm: Algorithm, state: ServerState, reports: Report) -> Rollback:
        """Of a step with these reports.

        Of a piece that does not say which rows it changes, the whole state is copied. One whose `apply` is younger than its
        `mutated_rows` does not say it: a subclass may change what the other does not name.
        """
        rows = []
        for slot, piece in algorithm.pieces().items():
            if not isinstance(piece, Stateful):
                continue
            mutated_rows = piece.mutated_rows(reports, state.slots[slot]) if _is_told(type(piece)) else None
            if mutated_rows is None:
                rows += [(tensor, ..., tensor.clone()) for tensor in state.slots[slot].values()]
                continue
            for name, numbers in mutated_rows.items():
                tensor = state.slots[slot][name]
                index = to_device(numbers, tensor.device)
                rows.append((tensor, index, tensor[index]))
        return cls(rows)

    def __call__(self) -> None:
        """Put them back."""
        for tensor, index, rows in self._rows:
            tensor[index] = rows


@cache
def _is_told(kind: type[Stateful]) -> bool:
    """Whether what a piece says of its changes is about the `apply` that it has; what the base class says is about any."""
    names = ("apply", "mutated_rows", "client_rows")
    apply, *says = (next(c for c in kind.__mro__ if name in c.__dict__) for name in names)
    declared = [c for c in says if c is not Stateful]
    return not declared or any(issubclass(c, apply) for c in declared)
