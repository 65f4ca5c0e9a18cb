"""Average vectors that are clipped around the last direction (centred clipping)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count, positive
from turnout.core.types import Federation, State
from turnout.pieces.aggregation.robust import Robust, Vectors
from turnout.pieces.base import WithState


@dataclass(frozen=True)
class CentredClipping(Robust, name="centred_clipping"):
    """Move the last direction by clipped differences: ``u <- u + mean_b (v_b - u) min(1, radius / ||v_b - u||)``.

    u begins at 0 in the first step, and in later ones at the direction before. `fraction` is read by `mixing` alone. The
    paper's clients send momenta rather than updates.

    Args:
        radius: how far one vector can pull (tau), times 1/n.
        iterations: how often u is moved in a step (L); the paper has 1.

    State: ``centre [P]``, float64.

    Example:
        An attacker pulls the mean of three by 1/3 at most:

        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(CentredClipping(radius=1.0), report([[0.1], [0.1], [1000.0]]))
        [[0.4]]

    Reference: Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021.
    """

    replaces_state = True

    radius: float = 1.0
    iterations: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("radius", self.radius)
        count("iterations", self.iterations)

    def init(self, federation: Federation) -> State:
        """Return the centre 0."""
        return {"centre": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)}

    def estimate(self, vectors: Vectors, state: State) -> WithState:
        """Return the moved direction: a combination of the vectors and the centre, found by inner products alone."""
        centre = state["centre"]
        rows, scale, mixed = vectors.rows, vectors.scale, vectors.mixed
        of_rows, along = vectors.products(), scale * rows.inner(centre)
        if mixed is not None:
            of_rows, along = mixed @ of_rows @ mixed.T, mixed @ along
        n = len(along)
        # The last vector is the centre.
        every = torch.zeros((n + 1, n + 1), dtype=torch.float64, device=scale.device)
        every[:n, :n], every[:n, n], every[n, :n], every[n, n] = of_rows, along, along, centre @ centre
        share = torch.zeros(n + 1, dtype=torch.float64, device=scale.device)
        share[n] = 1.0
        for _ in range(self.iterations):
            to = every @ share
            squares = every.diagonal() - 2 * to + share @ to
            length = squares[:n].clamp(min=0.0).sqrt()
            pull = torch.where(length > self.radius, self.radius / length, 1.0) / n
            share = share * (1.0 - pull.sum())
            share[:n] += pull
        chosen = share[:n] if mixed is None else share[:n] @ mixed
        moved = rows.weighted_sum(chosen * scale) + share[n] * centre
        return moved, {"centre": moved}
