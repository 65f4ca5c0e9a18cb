"""Sum the contributions of each client: their number, staleness and share of the weights."""

from __future__ import annotations

import numpy as np

from turnout.protocol.client_arrays import ClientArrays


class Influence(ClientArrays):
    """The contributions of each client, summed over server steps.

    The influence of a client is its share of the weights of a step, averaged over steps, whatever the sum of the weights of a
    step is. With equal shares it is 1 / N.

    Args:
        num_clients: N.
    """

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients, contributions=0, staleness=0, shares=0.0)

    def add(self, clients: np.ndarray, staleness: np.ndarray, weights: np.ndarray) -> None:
        """Add a server step.

        Args:
            clients: the clients in the step, int64 ``[B]``.
            staleness: the staleness of their reports, int64 ``[B]``.
            weights: the weights of their reports, ``[B]``; if all are zero, no shares are added.
        """
        np.add.at(self.arrays["contributions"], clients, 1)
        np.add.at(self.arrays["staleness"], clients, staleness)
        total = np.abs(weights).sum()
        if total > 0:
            np.add.at(self.arrays["shares"], clients, np.abs(weights) / total)

    def columns(self) -> dict[str, np.ndarray]:
        """Return ``contributions``, ``mean_staleness`` (NaN without any), ``influence`` and ``fair_share``, ``[N]``."""
        contributions, staleness, shares = self.arrays.values()
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            return {
                "contributions": contributions,
                "mean_staleness": staleness / contributions,
                "influence": shares / shares.sum(),
                "fair_share": np.full(len(shares), 1 / len(shares)),
            }
