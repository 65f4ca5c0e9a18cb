"""What an algorithm as a whole spends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from turnout.core.checks import ConfigurationError, counted
from turnout.privacy.accounting import Release, Windows, at_most, epsilon, noise_multiplier_for, rounds_within


class Plan(NamedTuple):
    """The privacy of a run.

    Attributes:
        release: of all its noised sums together.
        delta: with which epsilon is told.
        budget: the epsilon not to be exceeded; None is none.
    """

    release: Release
    delta: float
    budget: float | None

    def spent(self, rounds: int, total: int | None = None, lost: Windows = ()) -> float:
        """Return an epsilon that so many of a run's `total` rounds do not exceed, together with lost releases."""
        return at_most(self.release, rounds, self.delta, total, lost)

    def columns(self, rounds: int, total: int, lost: Windows = ()) -> dict[str, float]:
        """Return what the table of rounds says: epsilon, and by which sampling it is smaller, with its rate, if by any."""
        rate = self.release.sampling_rate
        sampling = {} if rate is None else {f"{self.release.sampling}_rate": rate}
        return {"epsilon": self.spent(rounds, total, lost), **sampling}

    def exhausted(self, rounds: int, total: int | None, lost: Windows = ()) -> str | None:
        """Say why there can be no further round within the budget, if there can be none."""
        if self.budget is None or (next_one := self.spent(rounds + 1, total, lost)) <= self.budget:
            return None
        more = sum(last - first for first, last in lost)
        behind = f" and {counted(more, 'lost release')}" if more else ""
        return (
            f"the privacy budget is spent: round {rounds + 1}{behind} would bring epsilon to {next_one:.4g} at "
            f"delta={self.delta:g}, more than budget={self.budget:g}"
        )

    @property
    def relation(self) -> str:
        """Say in words which federations are neighbours, and what is counted."""
        rate = self.release.sampling_rate
        if rate is None:
            return "no sampling counted; one client has no data"
        if self.release.sampling == "poisson":
            return f"each client drawn by a coin of {rate:g}; one client has no data"
        return f"a sample of {rate:.3g} of the clients without replacement; one client is replaced by another"

    def check(self, rounds: int) -> None:
        """Refuse a run that would exceed its budget, before it begins.

        Raises:
            ConfigurationError: with the rounds and with the noise that would stay within it.
        """
        total = epsilon(self.release, rounds, self.delta)
        if self.budget is None or total <= self.budget:
            return
        fits = rounds_within(self.release, self.budget, self.delta, rounds)
        needed = noise_multiplier_for(self.budget, self.delta, rounds, self.release) * 1.0005  # shown with four digits
        raise ConfigurationError(
            f"budget: {rounds} rounds would spend epsilon={total:.4g} at delta={self.delta:g}, more than "
            f"budget={self.budget:g}; write rounds={fits}, or noise_multiplier={needed:.4g}"
        )


def plan_of(pieces: Iterable[Any]) -> Plan | None:
    """Return the privacy of an algorithm with these pieces; None where none of them adds noise.

    Several noised sums of the same clients cost as much as one whose ``1 / z^2`` is the sum of theirs.

    Raises:
        ConfigurationError: for sums that cannot be counted together.
    """
    private = tuple(piece for piece in pieces if hasattr(piece, "release"))
    return _together(private) if any(hasattr(piece, "delta") for piece in private) else None


@lru_cache(maxsize=16)
def _together(private: tuple[Any, ...]) -> Plan:
    """The privacy of pieces that add noise, of which one has the delta and the budget."""
    first = next(piece for piece in private if hasattr(piece, "delta"))
    release: Release = first.release()
    others = [piece.release() for piece in private if piece is not first]
    if others and (release.coefficients is not None or release.sampling_rate is not None):
        names = " and ".join(type(piece).__name__ for piece in private)
        raise ConfigurationError(f"{names}: only independent noise without sampling is counted together")
    if others and release.noise_multiplier:
        both = sum(each.noise_multiplier**-2 for each in (release, *others)) ** -0.5
        release = replace(release, noise_multiplier=both)
    return Plan(release, first.delta, first.budget)
