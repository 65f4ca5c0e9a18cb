"""Check options that hold a number for each client."""

from __future__ import annotations

from turnout.core.checks import ConfigurationError, refuse


def check_shares(shares: tuple[float, ...] | None) -> None:
    """Refuse shares of clients in the objective that are not positive or do not sum to 1; None is 1/N each."""
    if shares is not None and (not shares or not min(shares) > 0 or not abs(sum(shares) - 1) <= 1e-6):
        raise refuse(
            "shares", given=shares, needed="a positive number for each client, which sum to 1", instead="None is 1/N"
        )


def check_length(name: str, values: tuple[float, ...] | None, num_clients: int) -> None:
    """Refuse numbers for another number of clients."""
    if values is not None and len(values) != num_clients:
        raise ConfigurationError(f"{name} has a number for {len(values)} clients, but there are {num_clients}")


def refuse_new_clients(name: str, values: tuple[float, ...] | None) -> None:
    """Refuse clients who enrol during a run, for whom there is no number."""
    if values is not None:
        raise ConfigurationError(
            f"{name} has a number for each of {len(values)} clients, and more have come: write {name}=None where clients may "
            "enrol at any time"
        )
