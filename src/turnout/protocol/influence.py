"""How much each client had to say: how often it contributed, how late, and with which share of the weights."""

from __future__ import annotations

import numpy as np


class Influence:
    """Sums over server steps, by client.

    A client's influence is the sum over all steps of its share of the weights, over the number of steps; where all have
    their fair share it is 1 / N.

    Args:
        num_clients: N.
    """

    def __init__(self, num_clients: int) -> None:
        self._contributions = np.zeros(num_clients, dtype=np.int64)
        self._staleness = np.zeros(num_clients, dtype=np.int64)
        self._shares = np.zeros(num_clients)

    def add(self, clients: np.ndarray, staleness: np.ndarray, weights: np.ndarray) -> None:
        """Add a server step: who was in it, how stale ``[B]``, with which weights ``[B]``; all-zero weights are no step."""
        np.add.at(self._contributions, clients, 1)
        np.add.at(self._staleness, clients, staleness)
        total = np.abs(weights).sum()
        if total > 0:
            np.add.at(self._shares, clients, np.abs(weights) / total)

    def grow(self, more: int) -> None:
        """Add clients who have contributed nothing."""
        self._contributions, self._staleness, self._shares = (
            np.append(column, np.zeros(more, dtype=column.dtype))
            for column in (self._contributions, self._staleness, self._shares)
        )

    def columns(self) -> dict[str, np.ndarray]:
        """``contributions``, ``mean_staleness`` (NaN without any), ``influence`` and ``fair_share``, ``[N]``."""
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            return {
                "contributions": self._contributions,
                "mean_staleness": self._staleness / self._contributions,
                "influence": self._shares / self._shares.sum(),
                "fair_share": np.full(len(self._shares), 1 / len(self._shares)),
            }

    def state(self) -> dict[str, np.ndarray]:
        """All that it carries."""
        return {"contributions": self._contributions, "staleness": self._staleness, "shares": self._shares}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        self._contributions, self._staleness = state["contributions"].copy(), state["staleness"].copy()
        self._shares = state["shares"].copy()
