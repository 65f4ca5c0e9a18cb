"""Smoothed participation rates of clients, as in F3AST."""

from __future__ import annotations

import numpy as np
import torch

from turnout.base.piece import Shares, Stateful
from turnout.core.ranges import Share
from turnout.core.types import Federation, State


class SmoothedRates(Stateful):
    """Base class of pieces that estimate participation rates by exponential smoothing.

    The rate of client k starts at ``r_k = 1/N``, and after every round becomes ``r_k <- (1 - beta) r_k + beta 1{k takes
    part}``. A derived piece has the options `beta`, the weight of the present round, in (0, 1], and `shares`, the
    clients' shares p of the objective, which sum to 1 (None is 1/N each). It declares ``client_rows = ("rate",
    "last")``.

    State: ``rate [N]`` (r after the round ``last``, float64) and ``last [N]`` (int64, -1 before the first).
    """

    per_client = ("shares",)

    beta: Share
    shares: Shares | None

    def init(self, federation: Federation) -> State:
        """Return the rates before the first round."""
        n = federation.num_clients
        return {"rate": torch.full((n,), 1.0 / n, dtype=torch.float64), "last": torch.full((n,), -1)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state with the rates of new clients, whose first round is the next one."""
        fresh, n = self.init(after), before.num_clients
        fresh["last"].fill_(version - 1)
        # A client that never took part still has the initial rate 1/N, with the larger N; other rates do not change.
        rate = torch.where(state["last"] < 0, fresh["rate"][:n], state["rate"])
        return {name: torch.cat([old, fresh[name][n:]]) for name, old in (state | {"rate": rate}).items()}

    def share(self, clients: np.ndarray, num_clients: int) -> np.ndarray:
        """Return the shares p of these clients in the objective."""
        return np.full(len(clients), 1.0 / num_clients) if self.shares is None else np.asarray(self.shares)[clients]

    def rate_before(self, clients: np.ndarray, version: int, state: State) -> np.ndarray:
        """Return the rates r of these clients before the round that begins with a version, float64 ``[n]``.

        The state holds r after a client's last round. Each round of absence multiplies it by 1 - beta, so that all of
        them are one power, and absent clients cost nothing.
        """
        away = version - 1 - state["last"].numpy()[clients]
        return state["rate"].numpy()[clients] * (1.0 - self.beta) ** away

    def rate_after(self, clients: np.ndarray, version: int, state: State) -> np.ndarray:
        """Return the rates r of these clients after the round, in which all of them take part."""
        return (1.0 - self.beta) * self.rate_before(clients, version, state) + self.beta

    def note(self, clients: np.ndarray, version: int, state: State) -> None:
        """Record the clients that took part in the round, in place."""
        clients = np.unique(clients)
        rates = self.rate_after(clients, version, state)
        state["rate"].numpy()[clients], state["last"].numpy()[clients] = rates, version
