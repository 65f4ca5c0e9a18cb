"""Account for the privacy of a whole algorithm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from turnout.core.checks import ConfigurationError, counted
from turnout.core.types import State
from turnout.privacy.accounting import Release, Windows, at_most, epsilon, noise_multiplier_for, rounds_within
from turnout.privacy.answers import Answers


@dataclass(frozen=True)
class Plan:
    """The privacy of a run: its noised sums, its budget, and the epsilon of its rounds and answers.

    Args:
        pieces: the pieces of the algorithm that add noise; the first has the delta and the budget.
        searched: coefficients of correlated noise that the run found by a search; None if it has not searched.
    """

    pieces: tuple[Any, ...]
    searched: tuple[float, ...] | None = None

    @property
    def limit(self) -> tuple[int, int | None]:
        """The minimum number of rounds between participations of a client, and their maximum number, None if unlimited."""
        return self.pieces[0].separation, self.pieces[0].most

    @property
    def delta(self) -> float:
        """The delta of epsilon."""
        return self.pieces[0].delta

    @property
    def budget(self) -> float | None:
        """The maximum epsilon of a run; None is unlimited."""
        return self.pieces[0].budget

    @property
    def is_searched(self) -> bool:
        """True if the coefficients of correlated noise have not been searched yet."""
        return self.pieces[0].correlation.is_searched and self.searched is None

    @property
    def release(self) -> Release:
        """All noised sums as one, for the accountant; may require a search."""
        return _together(self.pieces, self.searched)

    @property
    def answers(self) -> Answers | None:
        """Bounds and noise of answers to evaluations and queries; None if these are not allowed."""
        return getattr(self.pieces[0], "answers", None)

    @property
    def most_answers(self) -> int:
        """The number of noised answers for which a run reserves a part of its budget."""
        return 0 if self.answers is None else self.answers.most

    def beside(self, answers: int) -> float:
        """Return the sum of ``1 / z^2`` over a number of noised answers."""
        return answers * self.answers.noise_multiplier**-2 if self.answers is not None and answers else 0.0

    @property
    def is_noised(self) -> bool:
        """True if there is noise; without noise there is no privacy guarantee."""
        return self.pieces[0].noise_multiplier > 0

    @property
    def sampling(self) -> str | None:
        """The sampling that amplifies privacy, ``"poisson"`` or ``"fixed_size"``; None without."""
        release = None if self.pieces[0].is_correlated else self.release
        return None if release is None or release.sampling_rate is None else release.sampling

    def search(self) -> list[float] | None:
        """Return the coefficients that correlated noise searches for a run, which `settled` stores; None without a search."""
        return self.pieces[0].noise.search()

    def settled(self, state: State, searched: list[float]) -> State:
        """Return a state of the aggregation with the result of `search`, which is then not repeated."""
        return self.pieces[0].settled(state, searched)

    def of(self, state: State) -> Plan:
        """Return the plan of a run whose aggregation has this state."""
        return replace(self, searched=self.pieces[0].searched(state))

    def spent(self, rounds: int, total: int | None = None, lost: Windows = (), answers: int = 0) -> float:
        """Return an upper bound of epsilon after a number of rounds and noised answers, with lost releases."""
        return at_most(self.release, rounds, self.delta, total, lost, self.beside(answers))

    def columns(self, rounds: int, total: int | None, lost: Windows = (), answers: int = 0) -> dict[str, float]:
        """Return the columns of the table of rounds: epsilon, and the rate of the sampling that amplifies it, if any."""
        rate = self.release.sampling_rate
        sampling = {} if rate is None else {f"{self.release.sampling}_rate": rate}
        return {"epsilon": self.spent(rounds, total, lost, answers), **sampling}

    def exhausted(self, rounds: int, total: int | None, lost: Windows = (), answers: int = 0) -> str | None:
        """Return why another round would exceed the budget; None if it would not."""
        if self.budget is None or (next_one := self.spent(rounds + 1, total, lost, answers)) <= self.budget:
            return None
        more = sum(last - first for first, last in lost)
        behind = f" and {counted(more, 'lost release')}" if more else ""
        return (
            f"the privacy budget is spent: round {rounds + 1}{behind} would bring epsilon to {next_one:.4g} at "
            f"delta={self.delta:g}, more than budget={self.budget:g}"
        )

    def refuses_answer(self, rounds: int, lost: Windows, answers: int) -> str | None:
        """Return why another evaluation or query would exceed the budget; None if it would not.

        Args:
            rounds: the number of rounds of the whole run; the budget of future rounds is reserved.
            lost: see `spent`.
            answers: the number of noised answers so far.
        """
        if self.answers is None:
            return (
                "answers reveal clients' data, and the noise of this run does not cover them: write "
                "aggregation.answers.noise_multiplier=4 (in Python, the option answers of PrivateSum), with which they are "
                "clipped, noised and counted"
            )
        if answers >= self.answers.most:
            return f"all {self.answers.most} noised answers of this run are spent: write a larger answers.most"
        spent = self.spent(rounds, rounds, lost, answers + 1)
        if self.budget is None or spent <= self.budget:
            return None
        return (
            f"the privacy budget is spent: with another answer, {rounds} rounds and {answers + 1} answers would bring "
            f"epsilon to {spent:.4g} at delta={self.delta:g}, more than budget={self.budget:g}"
        )

    @property
    def relation(self) -> str:
        """The adjacency relation in words, and the sampling."""
        rate = self.release.sampling_rate
        if rate is None:
            return "no sampling counted; one client has no data"
        if self.release.sampling == "poisson":
            return f"each client sampled with probability {rate:g}; one client has no data"
        return f"a sample of {rate:.3g} of the clients without replacement; one client is replaced by another"

    def check_correlation(self, rounds: int) -> None:
        """Check that the run has the number of rounds over which its noise is correlated.

        Raises:
            ConfigurationError: if not, with both numbers.
        """
        first = self.pieces[0]
        if first.is_correlated and first.rounds not in (None, rounds):
            raise ConfigurationError(
                f"rounds: got {rounds}, and the noise of PrivateSum is correlated over {first.rounds}: give both the same "
                "rounds"
            )

    def check(self, rounds: int, answers: int = 0) -> None:
        """Check, before a run starts, that it will not exceed its budget.

        Args:
            rounds: the number of rounds.
            answers: the number of noised answers to evaluations and queries for which the run reserves budget.

        Raises:
            ConfigurationError: if not, with the number of rounds and the noise that would stay within it.
        """
        beside = self.beside(answers)
        total = epsilon(self.release, rounds, self.delta, beside=beside)
        if self.budget is None or total <= self.budget:
            return
        fits = rounds_within(self.release, self.budget, self.delta, rounds, beside)
        # Increased, so that the four digits of the message are sufficient.
        needed = noise_multiplier_for(self.budget, self.delta, rounds, self.release, beside) * 1.0005
        also = f" and {counted(answers, 'noised answer')}" if answers else ""
        instead = f"write rounds={fits}, or noise_multiplier={needed:.4g}"
        if math.isinf(needed):
            instead = "the answers alone spend it: write fewer (answers.most), or a larger answers.noise_multiplier"
        elif answers:
            instead += ", or fewer answers (answers.most)"
        raise ConfigurationError(
            f"budget: {rounds} rounds{also} would spend epsilon={total:.4g} at delta={self.delta:g}, more than "
            f"budget={self.budget:g}; {instead}"
        )


def plan_of(pieces: Iterable[Any]) -> Plan | None:
    """Return the privacy of an algorithm with these pieces; None if none of them adds noise.

    Several noised sums over the same clients have the cost of one whose ``1 / z^2`` is the sum of theirs.

    Raises:
        ConfigurationError: if sums cannot be composed.
    """
    private = sorted(
        (piece for piece in pieces if hasattr(piece, "release")), key=lambda piece: not hasattr(piece, "delta")
    )
    if not private or not hasattr(private[0], "delta"):
        return None
    plan = Plan(tuple(private))
    if len(private) > 1 and (private[0].is_correlated or plan.sampling is not None):
        names = " and ".join(type(piece).__name__ for piece in private)
        raise ConfigurationError(f"{names}: independent noise without sampling is needed: write correlation=None")
    return plan


@lru_cache(maxsize=16)
def _together(private: tuple[Any, ...], searched: tuple[float, ...] | None) -> Release:
    """Return the noised sums of several pieces as one."""
    first, *others = private
    release: Release = first.release(searched)
    if others and release.noise_multiplier:
        multiplier = (
            sum(part.noise_multiplier**-2 for part in (release, *(piece.release() for piece in others))) ** -0.5
        )
        release = replace(release, noise_multiplier=multiplier)
    return release
