"""Undo a server step, from copies of the rows that its pieces change in place."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from turnout.base import Stateful
from turnout.base.algorithm import Algorithm
from turnout.base.piece import mutated_rows
from turnout.core.device import to_device
from turnout.core.types import Report, ServerState


class Rollback:
    """Copies of rows of the server's state from before a step.

    If pieces declare the rows that they change, the cost depends on the cohort and not on the population.

    Args:
        rows: tuples of a tensor, the index of its copied rows (``...`` for all), and the copies.
    """

    def __init__(self, rows: list[tuple[torch.Tensor, Any, torch.Tensor]]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, algorithm: Algorithm, state: ServerState, reports: Report) -> Rollback:
        """Copy everything that the step with these reports may change.

        The whole state of a piece is copied unless the piece declares the rows that it changes. The declaration of a
        base class does not count for a subclass that overrides `apply`, which may change other rows.
        """
        rows = []
        for slot, piece in algorithm.pieces().items():
            if not isinstance(piece, Stateful):
                continue
            rows_of = mutated_rows(piece, reports, state.slots[slot]) if _declares_rows(type(piece)) else None
            if rows_of is None:
                rows += [(tensor, ..., tensor.clone()) for tensor in state.slots[slot].values()]
                continue
            for name, numbers in rows_of.items():
                tensor = state.slots[slot][name]
                index = to_device(numbers, tensor.device)
                rows.append((tensor, index, tensor[index]))
        return cls(rows)

    def __call__(self) -> None:
        """Restore the copied rows."""
        for tensor, index, rows in self._rows:
            tensor[index] = rows


@cache
def _declares_rows(kind: type[Stateful]) -> bool:
    """Return whether the changed rows are declared in the class that defines `apply`, or in a subclass.

    The declarations of `Stateful` itself count for every class.
    """
    apply = next(c for c in kind.__mro__ if "apply" in c.__dict__)
    says = (next((c for c in kind.__mro__ if name in c.__dict__), Stateful) for name in ("mutated_rows", "client_rows"))
    declared = [c for c in says if c is not Stateful]
    return not declared or any(issubclass(c, apply) for c in declared)
