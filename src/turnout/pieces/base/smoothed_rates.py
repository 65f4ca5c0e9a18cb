"""How often clients take part, as F3AST smooths it: a number for each, settled when it is looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, positive, refuse
from turnout.core.types import Federation, State


def check_shares(shares: tuple[float, ...]) -> None:
    """Refuse shares of clients in the objective that are not positive or do not sum to 1."""
    if not shares or not min(shares) > 0 or not abs(sum(shares) - 1) <= 1e-6:
        raise refuse(
            "shares", given=shares, needed="a positive number for each client, which sum to 1", instead="None is 1/N"
        )


def check_number_of_shares(shares: tuple[float, ...], num_clients: int) -> None:
    """Refuse shares of another number of clients."""
    if len(shares) != num_clients:
        raise ConfigurationError(f"shares has a number for {len(shares)} clients, but there are {num_clients}")


def new_clients_without_shares(shares: tuple[float, ...]) -> ConfigurationError:
    """Return the error for clients who enrol where shares are fixed."""
    return ConfigurationError(
        f"shares has a number for each of {len(shares)} clients, and more have come: write shares=None where clients may "
        "enrol at any time"
    )


@dataclass(frozen=True)
class SmoothedRates:
    """``r_k <- (1 - beta) r_k + beta 1{k takes part}`` in every round, from ``r_k = 1/N``.

    The rounds in which a client is away are made up for when it is asked for, so that they cost nothing.

    State: ``rate [N]`` (r after the round ``last``, float64) and ``last [N]`` (int64, -1 before the first).

    Args:
        beta: how much of r the present round is, in (0, 1].
        shares: p, what each client counts in the objective; None is 1/N each.

    Raises:
        ConfigurationError: for a beta outside (0, 1], or shares that are not positive numbers which sum to 1.
    """

    beta: float = 0.01
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        positive("beta", self.beta)
        if self.beta > 1:
            raise refuse("beta", given=self.beta, needed="a number > 0 and <= 1")
        if self.shares is not None:
            check_shares(self.shares)

    def first(self, federation: Federation) -> State:
        """Return the rates before the first round."""
        n = federation.num_clients
        if self.shares is not None:
            check_number_of_shares(self.shares, n)
        return {"rate": torch.full((n,), 1.0 / n, dtype=torch.float64), "last": torch.full((n,), -1)}

    def enlarged(self, state: State, after: Federation, version: int) -> State:
        """Return the rates with those of new clients, whose first round is the present one."""
        if self.shares is not None:
            raise new_clients_without_shares(self.shares)
        fresh, before = self.first(after), len(state["rate"])
        fresh["last"].fill_(version - 1)
        rate = torch.where(state["last"] < 0, fresh["rate"][:before], state["rate"])  # who never took part: 1/N of all
        return {name: torch.cat([old, fresh[name][before:]]) for name, old in (state | {"rate": rate}).items()}

    def share(self, clients: np.ndarray, num_clients: int) -> np.ndarray:
        """Return p of these clients."""
        return np.full(len(clients), 1.0 / num_clients) if self.shares is None else np.asarray(self.shares)[clients]

    def before(self, clients: np.ndarray, version: int, state: State) -> np.ndarray:
        """Return r of these clients before the round that begins with a version, float64 ``[n]``."""
        away = version - 1 - state["last"].numpy()[clients]
        return state["rate"].numpy()[clients] * (1.0 - self.beta) ** away

    def after(self, clients: np.ndarray, version: int, state: State) -> np.ndarray:
        """Return r of these clients, who take part in the round, when it is over."""
        return (1.0 - self.beta) * self.before(clients, version, state) + self.beta

    def note(self, clients: np.ndarray, version: int, state: State) -> None:
        """Write down who took part in the round."""
        clients = np.unique(clients)
        rates = self.after(clients, version, state)
        state["rate"].numpy()[clients], state["last"].numpy()[clients] = rates, version
