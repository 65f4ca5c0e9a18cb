"""Reject algorithms that are incompatible with a pace, with virtual time, with real machines or with their own privacy.

Simulation and deployment call the same checks. A piece declares its own requirements (`Piece.needs_rounds`,
`Piece.needs_simulation`); those that follow from the structure of an algorithm, such as measurements before a selection, are
derived here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnout.base import FixedCohort, InformsClients, KeepingCorrection, Normalizer, Selection
from turnout.base.aggregation import Aggregation
from turnout.base.algorithm import Algorithm
from turnout.base.selection import enlarged
from turnout.core.checks import ConfigurationError
from turnout.population import Everyone, Population
from turnout.protocol.pace import Pace, Rounds
from turnout.protocol.secure.masking import Masking

_MEASURES = "{piece} measures before it chooses, for which the server would have to wait for everyone"
_INFORMS = (
    "{piece} tells clients what depends on all reports so far, and with {pace} some of those are still under way when a "
    "task is given"
)
_KEEPS = (
    "{piece} corrects local steps by the server's mean of a vector ({keeps}) minus the client's own; these corrections "
    "cancel over all clients only if the mean has a single version, and {pace} may mix several (leave {piece} out)"
)


def check_pace(pace: Pace, algorithm: Algorithm, num_clients: int | None = None) -> None:
    """Reject pieces that need synchronous rounds if the pace has none, and cohorts that cannot be enlarged.

    Args:
        pace: the pace.
        algorithm: the algorithm.
        num_clients: N, of which cohorts may be a share; None if it is unknown.

    Raises:
        ConfigurationError: if there are any, with the reason that the piece declares.
    """
    if pace.forms_groups and algorithm.extra_phases:
        _check_groups(algorithm)
    _check_sizes(pace, algorithm, num_clients)
    if pace.steps_are_rounds:
        if isinstance(pace, Rounds) and pace.over_selection != 1.0:
            enlarged(algorithm.selection, pace.over_selection)
        return
    for piece, reason in _needs_rounds(algorithm):
        sums_groups = isinstance(piece, Aggregation) and piece.extra is not None and piece.extra.sums_groups
        if sums_groups and pace.forms_groups:
            continue
        or_groups = ", or BufferedGroups(), whose groups mask among themselves" if sums_groups else ""
        raise ConfigurationError(f"{_of(piece, reason, pace)}: write a pace with rounds, such as Rounds(){or_groups}")


def _check_groups(algorithm: Algorithm) -> None:
    """Reject weights that are unknown when a group masks its updates, before other groups enter the step."""
    for piece in algorithm.weighting:
        if isinstance(piece, Normalizer) or piece.reads == "staleness" or piece.participation != "others":
            continue
        raise ConfigurationError(
            f"{type(piece).__name__} weighs a client by the participation of other clients, and the clients of a group "
            "multiply by their weight before it is known which groups take part in the step: use weights that depend on the "
            "client's participation alone, such as Participation without groups, or on its staleness, such as ByStaleness"
        )


def _check_sizes(pace: Pace, algorithm: Algorithm, num_clients: int | None) -> None:
    """Reject cohorts and groups that are too small for a secure sum."""
    masking: Masking | None = getattr(algorithm.aggregation, "masking", None)
    if masking is None:
        return
    selection = algorithm.selection
    size = getattr(selection, "cohort_size", None)
    if isinstance(size, float):  # a share of the clients
        size = selection.size(num_clients) if isinstance(selection, FixedCohort) and num_clients is not None else None
    if size is not None:
        masking.check_clients(size, "cohort_size")
    masking.check_clients(pace.masks_together(masking.min_clients), "group_size")


def check_clock(pace: Pace, population: Population) -> None:
    """Reject simulations in virtual time whose clients have no speed, or judge the model of every round.

    Raises:
        ConfigurationError: if there are any, with the reason.
    """
    if population.separation is not None and not isinstance(pace, Rounds):
        raise ConfigurationError(
            f"separation: got {population.separation} beside {type(pace).__name__}, which has no rounds: leave "
            "separation out, or write pace=Rounds()"
        )
    if not by_the_clock(pace, population):
        return
    if population.speed is None:
        raise ConfigurationError(
            f"pace: {type(pace).__name__} runs in virtual time, and the population has no speed, so nothing takes time: "
            "write Population(speed=Speed(compute=delay.Uniform(1, 2)))"
        )
    if population.opting is not None:
        raise ConfigurationError(
            "opting: clients judge the model of every round, and in virtual time there are no rounds: leave it out, or write "
            "Rounds() without deadline and dropout"
        )


def check_machines(algorithm: Algorithm) -> None:
    """Reject algorithms that cannot run between real machines.

    Raises:
        ConfigurationError: if there are any, with the reason that the piece declares.
    """
    if algorithm.local.traits.deadline is not None:
        raise ConfigurationError(
            "local.steps: a time budget counts steps by the simulated speed of clients, which is unknown for real clients: "
            "write a number of steps or epochs, and Rounds(deadline=...) for how long a round lasts"
        )
    if (plan := algorithm.privacy) is not None and plan.sampling is not None:
        raise ConfigurationError(
            "private_sum: the server draws clients by the run's seed, which clients know, and they may join at any time, "
            "so that sampling does not amplify privacy: leave sampling_rate and sampled_from out"
        )
    for piece in algorithm.pieces().values():
        if piece.needs_simulation is not None:
            raise ConfigurationError(f"{_of(piece, piece.needs_simulation)}: simulate it")


def check_privacy(algorithm: Algorithm, population: Population, pace: Pace, rounds: int, weights: str | None) -> None:
    """Reject runs that would exceed their privacy budget, or that would violate the assumptions of its accounting.

    Args:
        algorithm: the algorithm.
        population: the clients.
        pace: the pace.
        rounds: number of server steps of the run.
        weights: name, in messages, of the weights of examples that depend on the data of all clients; None without such
            weights.

    Raises:
        ConfigurationError: if there are any, with the reason.
    """
    if (plan := algorithm.privacy) is None:
        return
    plan.check_correlation(rounds)
    if plan.is_noised:
        _check_noised(algorithm, population, pace, weights)
    if plan.sampling is not None:
        _check_sampling(population, pace, "sampling_rate" if plan.sampling == "poisson" else "sampled_from")
    if plan.budget is not None and not plan.is_searched:
        plan.check(rounds, plan.most_answers)


def _check_noised(algorithm: Algorithm, population: Population, pace: Pace, weights: str | None) -> None:
    """Reject options by which the data of one client change the updates of others, or reveal participation."""
    if weights is not None:
        raise ConfigurationError(
            f"{weights}: they are divided by their mean over the examples of all clients, so that the data of one client "
            "change the updates of all others, and PrivateSum assumes that they do not: leave them out, or give a loss that "
            "weights classes by fixed numbers"
        )
    if population.opting is not None:
        raise ConfigurationError(
            "opting: whether a client opts in depends on the model's loss on its data, so that participation, which "
            "PrivateSum assumes to be public, reveals something about them: leave opting out, or write an availability that "
            "does not depend on the model"
        )
    if algorithm.local.traits.steps_by_examples and by_the_clock(pace, population):
        raise ConfigurationError(
            "epochs: a client with more examples works longer, so that its data affect in which steps clients take part, "
            "which PrivateSum assumes to be public: write steps=10 in place of epochs, or Rounds() without deadline and "
            "dropout"
        )


def _check_sampling(population: Population, pace: Pace, name: str) -> None:
    """Reject amplification by sampling unless the server alone decides which clients take part."""
    # Dropout reduces the number of reports, on which clipping and the opening of a sum depend.
    alone = isinstance(population.availability, Everyone) and population.separation is None
    if not alone or pace != Rounds() or population.dropout is not None:
        raise ConfigurationError(
            f"{name}: sampling hides a client only if the server alone decides which clients take part, and here that also "
            f"depends on the clients: leave {name} out, or write availability='everyone', no dropout, no separation and "
            "synchronous rounds"
        )


def by_the_clock(pace: Pace, population: Population) -> bool:
    """Return True if a run needs virtual time instead of one complete cohort after another."""
    return pace != Rounds() or population.dropout is not None


def _needs_rounds(algorithm: Algorithm) -> Iterator[tuple[Any, str]]:
    """Yield the pieces that need rounds, with their reasons."""
    for piece in algorithm.pieces().values():
        if isinstance(piece, Selection) and piece.measurements:
            yield piece, _MEASURES
        elif piece.needs_rounds is not None:
            yield piece, piece.needs_rounds
        elif isinstance(piece, KeepingCorrection):
            yield piece, _KEEPS.replace("{keeps}", ", ".join(algorithm.keeps))
        elif isinstance(piece, InformsClients):
            yield piece, _INFORMS


def _of(piece: Any, reason: str, pace: Pace | None = None) -> str:
    """Format the reason of a piece; its name comes first unless the reason has a placeholder for it."""
    text = reason if "{piece}" in reason else f"{{piece}}: {reason}"
    return text.replace("{piece}", type(piece).__name__).replace("{pace}", type(pace).__name__)
