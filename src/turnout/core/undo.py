"""What a server step changes in place, kept so that the step can be taken back: at the cost of its cohort."""

from __future__ import annotations

import torch

from turnout.core.algorithm import Algorithm
from turnout.core.pieces import Aggregation, Weighting
from turnout.core.types import Report, ServerState


class Undo:
    """Rows of the server's state, as they were before a step.

    Args:
        rows: of each: the tensor, where its rows are, and what they hold.
    """

    def __init__(self, rows: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, algorithm: Algorithm, state: ServerState, reports: Report) -> Undo | None:
        """Of a step with these reports; None if some piece does not say what it changes."""
        rows = []
        for place, piece in algorithm.pieces().items():
            if not isinstance(piece, Weighting | Aggregation):
                continue
            if (touched := piece.touched(reports, state.slots[place])) is None:
                return None
            for name, numbers in touched.items():
                tensor = state.slots[place][name]
                index = torch.from_numpy(numbers).to(tensor.device, non_blocking=True)
                rows.append((tensor, index, tensor[index]))
        return cls(rows)

    def __call__(self) -> None:
        """Put them back."""
        for tensor, index, rows in self._rows:
            tensor[index] = rows
