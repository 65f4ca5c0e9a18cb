"""Base class of pieces of the server's step."""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from turnout.core.types import Federation, Report, State
from turnout.pieces.base.piece import Piece

WithState = tuple[torch.Tensor, State]
"""The result of a piece, and its state afterwards."""


class Stateful(Piece, ABC):
    """A piece of the server's step with a state that is carried from round to round."""

    def init(self, federation: Federation) -> State:
        """Return the state before the first round."""
        return {}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state for more clients than `before`, after clients enrolled during a run.

        By default, tensors with a row for each client get the first rows of `init` for new ones. Pieces in which these rows
        depend on the time of enrolment, or whose other tensors depend on N, override it.

        Args:
            state: for the clients of `before`.
            before: the federation before the enrolment.
            after: the federation afterwards; new clients have the highest numbers.
            version: server steps so far.
        """
        one, two = (self.init(replace(after, num_clients=few, rates=None)) for few in (1, 2)) if state else ({}, {})
        by_client = [name for name in state if one[name].shape[:1] != two[name].shape[:1]]
        if not by_client:
            return state
        fresh = self.init(replace(after, num_clients=after.num_clients - before.num_clients, rates=None))
        return state | {name: torch.cat([state[name], fresh[name]]) for name in by_client}

    client_rows: ClassVar[tuple[str, ...]] = ()
    """Names of tensors of the state, with one row for each client, of which `apply` changes in place the rows of the clients
    that report, and nothing else. A server step is taken before it is known whether its reports are finite, and undone if
    they are not, if it overflows or if a piece raises. These rows are copied for that, and the whole state of a piece that
    declares nothing."""

    replaces_state: ClassVar[bool] = False
    """True if `apply` returns new tensors and changes none of the state in place."""

    def mutated_rows(self, report: Report, state: State) -> dict[str, np.ndarray] | None:
        """Return the rows (int64) by tensor that `apply` changes in place; None has all of the state copied.

        It is overridden only where these are neither none (`replaces_state`) nor those of `client_rows`.
        """
        if self.replaces_state:
            return {}
        known = {name: report.client for name in self.client_rows if name in state}
        return known if known or not state else None
