"""Base class of pieces of the server's step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from turnout.base.piece import Piece
from turnout.core.types import Federation, Report, State


class Stateful(Piece, ABC):
    """Base class of pieces of the server's step that carry a state from round to round."""

    def init(self, federation: Federation) -> State:
        """Return the state before the first round."""
        return {}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state after clients enrolled during a run.

        By default, tensors with one row per client are extended by initial rows, as `init` returns them. Pieces
        override the method if initial rows depend on the time of enrollment, or if other tensors depend on N.

        Args:
            state: state for the clients of `before`.
            before: the federation before the enrollment.
            after: the federation after the enrollment; new clients have the highest numbers.
            version: number of server steps so far.
        """
        one, two = (self.init(replace(after, num_clients=few, rates=None)) for few in (1, 2)) if state else ({}, {})
        by_client = [name for name in state if one[name].shape[:1] != two[name].shape[:1]]
        if not by_client:
            return state
        fresh = self.init(replace(after, num_clients=after.num_clients - before.num_clients, rates=None))
        return state | {name: torch.cat([state[name], fresh[name]]) for name in by_client}

    client_rows: ClassVar[tuple[str, ...] | None] = None
    """Names of state tensors with one row per client, where `apply` changes only reporting clients' rows in place.

    It is ``()`` if `apply` returns new tensors and changes no state tensor in place, and None if nothing is known. The
    server takes a step before it knows whether the reports are finite, and undoes it if they are not, if the step
    overflows or if a piece raises an error. For that purpose it copies these rows, and the whole state of a piece that
    declares nothing.
    """


class MutatesRows(ABC):
    """A piece that changes rows of its state in place, and these are not those of the reporting clients."""

    @abstractmethod
    def mutated_rows(self, report: Report, state: State) -> dict[str, np.ndarray] | None:
        """Return the rows that `apply` changes in place, int64 by tensor name; None if they are unknown."""


def mutated_rows(piece: Stateful, report: Report, state: State) -> dict[str, np.ndarray] | None:
    """Return the rows that `apply` of a piece changes in place, int64 by tensor name; None if they are unknown."""
    if isinstance(piece, MutatesRows):
        return piece.mutated_rows(report, state)
    known = {name: report.client for name in piece.client_rows or () if name in state}
    return known if known or not state or piece.client_rows == () else None
