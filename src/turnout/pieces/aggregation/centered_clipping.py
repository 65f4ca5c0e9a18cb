"""Average vectors after clipping their distances to the last direction (centered clipping)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import WithState
from turnout.core.ranges import Count, Positive
from turnout.core.types import Federation, State
from turnout.pieces.aggregation.robust import Robust, Vectors


@dataclass(frozen=True)
class CenteredClipping(Robust, name="centered_clipping"):
    """Move the last direction by the mean clipped difference of the vectors from it (centered clipping).

    In each of `iterations` passes over the n vectors v_b of a step (see `Robust`)::

        u <- u + (1/n) sum_b (v_b - u) min(1, radius / ||v_b - u||)

    u begins as the direction of the step before, in the first step as 0. A Byzantine report moves u by at most
    ``radius / n`` in a pass. The rule reads no number of Byzantine reports: `fraction` matters only for `mixing`. The
    paper's clients send momenta, and not updates.

    Args:
        radius: maximum norm of a difference (tau of the paper), > 0, in units of an update. Larger differences are
            scaled down to it.
        iterations: number of passes in a step (L of the paper), >= 1. The paper has 1.

    The other options are those of `Robust`.

    State: ``center [P]``, float64, the last direction.

    Example:
        An attacker moves the mean of three vectors by at most 1/3:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(CenteredClipping(radius=1.0), report([[0.1], [0.1], [1000.0]]))
        [[0.4]]

    Reference: Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021.
    """

    client_rows = ()

    radius: Positive = 1.0
    iterations: Count = 1

    def init(self, federation: Federation) -> State:
        """Return a center of zero."""
        return {"center": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)}

    def estimate(self, vectors: Vectors, state: State) -> WithState:
        """Return the new direction as a combination of the vectors and the center, computed from inner products."""
        center = state["center"]
        of_rows, along = vectors.gram(), vectors.inner(center)
        n = len(along)
        # The last vector is the center.
        every = torch.zeros((n + 1, n + 1), dtype=torch.float64, device=center.device)
        every[:n, :n], every[:n, n], every[n, :n], every[n, n] = of_rows, along, along, center @ center
        share = torch.zeros(n + 1, dtype=torch.float64, device=center.device)
        share[n] = 1.0
        for _ in range(self.iterations):
            to = every @ share
            squares = every.diagonal() - 2 * to + share @ to
            length = squares[:n].clamp(min=0.0).sqrt()
            pull = torch.where(length > self.radius, self.radius / length, 1.0) / n
            share = share * (1.0 - pull.sum())
            share[:n] += pull
        moved = vectors.combined(share[:n]) + share[n] * center
        return moved, {"center": moved}
